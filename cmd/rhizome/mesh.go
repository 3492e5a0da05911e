package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/config"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/mesh/lease"
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
		Boot: bootName(cmp.Or(cfg.Name, host), clock.Wall()), Wall: clock.Wall, Log: r.log, Metrics: registry,
	})
	if err != nil {
		return err
	}
	r.node, err = mesh.New(cfg.Mesh, mesh.Deps{Endpoint: r.endpoint, Clock: since, Log: r.log, StreamLog: cfg.Fleet.StreamLog(), Seed: seed})
	if err != nil {
		return err
	}
	registry.MustRegister(r.node.Collector())
	return r.agree(cfg, since, seed, registry)
}

// agree makes this replica's part in what replicas agree on.
func (r *replica) agree(cfg config.Config, since clock.Clock, seed uint64, registry prometheus.Registerer) (err error) {
	deps := lease.Deps{Node: r.node, Self: r.endpoint.Self().Boot, Plane: r.endpoint.Raft(), Clock: since, Log: r.log, Seed: seed, Saved: r.before.sections[sectionLeases],
		Fence: func(dead lease.Origin) {
			r.node.Do(func(now clock.Instant, c *core.Core) { c.Fence(now, core.Replica{Name: dead.Name, Inc: dead.Inc}) })
		},
		Low:   func() uint64 { return r.router.LowestPromise() },
		Marks: r.marks,
		Checkpoint: func(lows []lease.Low, marks []lease.StreamMark) {
			agreed := make([]core.StreamMark, len(marks))
			for i, m := range marks {
				agreed[i] = core.StreamMark(m)
			}
			r.node.Do(func(_ clock.Instant, c *core.Core) { c.CompareMarks(agreed) })
			for _, l := range lows {
				r.router.Settle(core.Replica{Name: l.Origin.Name, Inc: l.Origin.Inc}, l.Ticket)
			}
		}}
	if r.leases, err = lease.NewGroup(cfg.Leases, deps); errors.Is(err, lease.ErrSnapshot) {
		r.log.Warn("starting without the leases of before", "dir", cfg.State.Dir, "err", err)
		deps.Saved = nil
		r.leases, err = lease.NewGroup(cfg.Leases, deps)
	}
	if err != nil {
		return err
	}
	registry.MustRegister(r.leases.Collector())
	return nil
}

// timeOfDay tells this replica's, so that a clock that is wrong shows before a
// certificate is refused for it.
func timeOfDay() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rhizome_time_of_day_seconds", Help: "The time of day by which this replica's certificates and logs go, since 1970; replicas should agree on it.",
	}, func() float64 { return float64(clock.Wall().UnixMilli()) / 1000 })
}

// maxAgreedMarks bounds the streams whose marks replicas agree on at a time.
const maxAgreedMarks = 1024

// marks is how far this replica's streams are, for others to compare theirs with.
func (r *replica) marks() []lease.StreamMark {
	var marks []lease.StreamMark
	r.node.Do(func(now clock.Instant, c *core.Core) {
		for _, m := range c.Marks(now, maxAgreedMarks) {
			marks = append(marks, lease.StreamMark(m))
		}
	})
	return marks
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
