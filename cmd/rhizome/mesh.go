package main

import (
	"cmp"
	"crypto/rand"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/config"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/transport"
)

// enterMesh opens the mesh's port and makes the node behind it, where the
// configuration names a mesh; else there is neither.
func (r *replica) enterMesh(cfg config.Config, since clock.Clock, seed uint64, registry prometheus.Registerer) (err error) {
	if !cfg.Mesh.Enabled() {
		return nil
	}
	host, _ := os.Hostname()
	r.endpoint, err = transport.Listen(cfg.Mesh.Transport, transport.Options{
		Boot: bootName(cmp.Or(cfg.Name, host), time.Now()), Log: r.log, Metrics: registry,
	})
	if err != nil {
		return err
	}
	r.node, err = mesh.New(cfg.Mesh, mesh.Deps{Endpoint: r.endpoint, Clock: since, Log: r.log, StreamLog: cfg.Fleet.StreamLog(), Seed: seed})
	if err != nil {
		return err
	}
	registry.MustRegister(r.node.Collector())
	return nil
}

// maxHostBytes is how much of a host's name goes into that of a replica.
const maxHostBytes = 63

// bootName is the name of one life of a replica, unlike any other: that of its
// host and a ULID, so that names of a host sort by when it started.
func bootName(host string, at time.Time) string {
	var b strings.Builder
	for _, c := range host[:min(len(host), maxHostBytes)] {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', b.Len() > 0 && (c == '-' || c == '.' || c == '_'):
			b.WriteRune(c)
		}
	}
	if b.Len() == 0 {
		b.WriteString("replica")
	}
	const digits, timeDigits, randomDigits = "0123456789abcdefghjkmnpqrstvwxyz", 10, 16
	var when [timeDigits]byte
	ms := uint64(at.UnixMilli())
	for i := range when {
		when[timeDigits-1-i] = digits[ms&31]
		ms >>= 5
	}
	return b.String() + "-" + string(when[:]) + strings.ToLower(rand.Text()[:randomDigits])
}
