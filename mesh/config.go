package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

// Config says whom a replica shares what it knows with. Without a secret or
// certificates it is alone.
type Config struct {
	// Peers are where other replicas may be found, as host:port; all addresses
	// of a host are tried, again and again. One that is up is enough.
	Peers []string `yaml:"peers"`
	// Transport is the port, the cluster and how replicas know each other.
	Transport transport.Config `yaml:",inline"`
	// MaxQueueBytes bounds what waits to be sent to all peers together; what is
	// over it is dropped, and the peer asks for it. Default 64 MiB.
	MaxQueueBytes int `yaml:"max_queue_bytes"`
	// MaxRingBytes bounds the batches of KV events that are kept so that a peer
	// can catch up without a snapshot. Default 256 MiB.
	MaxRingBytes int `yaml:"max_ring_bytes"`
	// SyncBytesPerSecond is what each peer is sent at most of what it missed.
	// Default 20 MB.
	SyncBytesPerSecond int `yaml:"sync_bytes_per_second"`
	// MaxPendingBytes bounds the batches of KV events that wait for one before
	// them; what is over it is dropped, and asked for again. Default 64 MiB.
	MaxPendingBytes int `yaml:"max_pending_bytes"`
	// MaxAddresses bounds the addresses where replicas are, were or may be.
	// Default 256.
	MaxAddresses int `yaml:"max_addresses"`
	// Limits bound the rest of what is held of other replicas.
	Limits core.Limits `yaml:"limits"`
	// WarmUp is how long a replica that starts says at most that it is not ready,
	// until it has caught up with one of its peers. Default 10 s.
	WarmUp time.Duration `yaml:"warm_up"`
	// Leave is how long a replica that ends takes to say goodbye. Default 1 s.
	Leave time.Duration `yaml:"leave"`
}

// maxPeerNames bounds the list of peers.
const maxPeerNames = 64

// WithDefaults returns c with every zero value replaced by its default.
func (c Config) WithDefaults() Config {
	c.Transport = c.Transport.WithDefaults()
	for _, d := range []struct {
		field *int
		value int
	}{{&c.MaxQueueBytes, 64 << 20}, {&c.MaxRingBytes, 256 << 20}, {&c.SyncBytesPerSecond, 20_000_000}, {&c.MaxPendingBytes, 64 << 20}, {&c.MaxAddresses, 256}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	c.Limits = c.Limits.WithDefaults()
	c.WarmUp = cmp.Or(c.WarmUp, 10*time.Second)
	c.Leave = cmp.Or(c.Leave, time.Second)
	return c
}

// Validate says what in c, after WithDefaults, can't work; each problem begins
// with its key.
func (c Config) Validate() error {
	errs := []error{c.Transport.Validate(), c.Limits.Validate()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Peers) > maxPeerNames {
		bad("peers: %d names, at most %d are allowed", len(c.Peers), maxPeerNames)
	}
	for _, p := range c.Peers {
		host, port, err := net.SplitHostPort(p)
		if n, e := strconv.Atoi(port); err != nil || e != nil || host == "" || n < 1 || n > 65535 {
			bad("peers: %q: want host:port", p)
		}
	}
	if len(c.Peers) > 0 && !c.Enabled() {
		bad("peers are named, but neither secrets nor tls is set: nobody could be trusted")
	}
	if c.MaxQueueBytes < 2*core.MaxFrameBytes {
		bad("max_queue_bytes is %d: want at least %d, two frames", c.MaxQueueBytes, 2*core.MaxFrameBytes)
	}
	if c.MaxRingBytes < 1 {
		bad("max_ring_bytes is %d: want 1 or more", c.MaxRingBytes)
	}
	if c.SyncBytesPerSecond < 1000 {
		bad("sync_bytes_per_second is %d: want at least 1000", c.SyncBytesPerSecond)
	}
	if c.MaxPendingBytes < 1 {
		bad("max_pending_bytes is %d: want 1 or more", c.MaxPendingBytes)
	}
	if c.MaxAddresses < maxPeerNames {
		bad("max_addresses is %d: want %d or more, one for each of peers", c.MaxAddresses, maxPeerNames)
	}
	if c.WarmUp < 0 {
		bad("warm_up is %v: want 0 (the default) or more", c.WarmUp)
	}
	if c.Leave < 0 || c.Leave > time.Minute {
		bad("leave is %v: want 0s to 1m", c.Leave)
	}
	return errors.Join(errs...)
}

// Enabled says whether there is a mesh to take part in.
func (c Config) Enabled() bool { return c.Transport.Enabled() }

// Core returns the part of c that is the core's.
func (c Config) Core(self string, log crdt.LogConfig, seed uint64) core.Config {
	log.MaxRingBytes, log.MaxPendingBytes = c.MaxRingBytes, c.MaxPendingBytes
	return core.Config{Self: core.Replica{Name: self}, SyncBytesPerSecond: c.SyncBytesPerSecond, Log: log, Limits: c.Limits, Seed: seed}
}
