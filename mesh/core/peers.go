package core

import (
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/zeebo/xxh3"
)

// peer is another replica.
type peer struct {
	name   string
	alive  bool // as membership has it
	up     bool // frames can be sent
	diedAt clock.Instant

	told    int                 // of our numbers, those that it knows
	numbers map[uint64]numbered // streams that its live frames use

	tasks    []task // what it asked for
	credit   float64
	creditAt clock.Instant
	parts    map[crdt.StreamID]*assembly // of snapshots that it sends

	behind    bool // something was lost between us: vectors are due
	unheard   bool // its vector came before it could be asked for anything
	vectorAt  clock.Instant
	lastFrame clock.Instant
}

func (c *Core) peer(name string) *peer {
	p := c.peers[name]
	if p == nil {
		p = &peer{name: name, numbers: make(map[uint64]numbered), parts: make(map[crdt.StreamID]*assembly)}
		c.peers[name] = p
		c.names = sortedInsert(c.names, name)
	}
	return p
}

// Alive says that membership knows a replica. The error of too many is that
// nothing is done: see Refused.
func (c *Core) Alive(now clock.Instant, name string) {
	if c.peers[name] == nil && len(c.peers) >= c.cfg.Limits.Replicas {
		c.stats.Refused++
		return
	}
	p := c.peer(name)
	if !p.alive {
		p.alive = true
		c.unsettle = now
	}
}

// Dead says that a replica is gone, whether it left or died. Streams that it
// read get another reader at once.
func (c *Core) Dead(now clock.Instant, name string) {
	p := c.peers[name]
	if p == nil || !p.alive {
		return
	}
	p.alive, p.diedAt = false, now
	c.Down(now, name)
	if slices.Contains(c.readers, name) {
		c.readers = sortedDelete(c.readers, name)
		c.sink.Readers()
	}
	c.unsettle = now
}

// Up says that frames to a peer go through: a connection stands. What was sent
// on one before may be lost.
func (c *Core) Up(now clock.Instant, name string) {
	c.Alive(now, name)
	p := c.peers[name]
	if p == nil {
		return
	}
	p.up, p.told, p.tasks, p.behind, p.lastFrame = true, 0, nil, false, now
	p.credit, p.creditAt = 0, now
	clear(p.parts)
	c.introduce(p)
	c.sendVector(now, p, p.unheard)
	p.unheard = false
}

// Down says that no connection to a peer stands.
func (c *Core) Down(now clock.Instant, name string) {
	if p := c.peers[name]; p != nil {
		p.up, p.tasks = false, nil
		clear(p.parts)
		c.forgetAsked(name)
	}
}

// Overflowed says that frames to a peer were dropped, for it did not take them
// fast enough. Once there is room again it is told how far this replica is.
func (c *Core) Overflowed(now clock.Instant, name string) {
	if p := c.peers[name]; p != nil && p.up {
		p.behind, p.told, p.tasks = true, 0, nil
	}
}

// settle takes the replicas that are alive for readers once their set has not
// changed for a while.
func (c *Core) settle(now clock.Instant) {
	if c.readers == nil && c.unsettle == 0 {
		c.unsettle = max(now, 1)
	}
	if c.unsettle != 0 && now.Sub(c.unsettle) >= c.cfg.Settled {
		c.Settle()
	}
}

// Settle takes the replicas that are alive for readers at once: for a driver
// that knows that they are all there will be.
func (c *Core) Settle() {
	c.unsettle = 0
	readers := []string{c.cfg.Self.Name}
	for _, name := range c.names {
		if c.peers[name].alive {
			readers = sortedInsert(readers, name)
		}
	}
	if !slices.Equal(readers, c.readers) {
		c.readers = readers
		c.sink.Readers()
	}
}

// Reader returns which replica reads a worker's events and publishes them, and
// which stands by: the first and the second in the order of a hash of both
// names. standby is empty where there is one replica.
func (c *Core) Reader(w kv.WorkerID) (first, standby string) {
	var most, next uint64
	for _, name := range c.readers {
		h := xxh3.HashStringSeed(name, uint64(w))
		switch {
		case first == "" || h > most:
			standby, next = first, most
			first, most = name, h
		case standby == "" || h > next:
			standby, next = name, h
		}
	}
	return first, standby
}

// Reads reports whether this replica is the reader of a worker.
func (c *Core) Reads(w kv.WorkerID) bool {
	first, _ := c.Reader(w)
	return first == c.cfg.Self.Name
}

// sweep forgets replicas that died long ago with what they said of themselves,
// and streams that are not current any more.
func (c *Core) sweep(now clock.Instant) {
	for _, name := range slices.Clone(c.names) {
		if p := c.peers[name]; !p.alive && now.Sub(p.diedAt) >= c.cfg.Keep {
			delete(c.peers, name)
			c.names = sortedDelete(c.names, name)
			c.dropPages(func(r Replica) bool { return r.Name == name })
		}
	}
	c.sweepStreams(now)
}

// PeerState is what is known of a peer.
type PeerState struct {
	Name      string
	Alive, Up bool
	// Silent is how long ago its last frame came.
	Silent time.Duration
	// Wants is how many things it asked for and was not sent yet.
	Wants int
}

// Peers returns the peers by name.
func (c *Core) Peers(now clock.Instant) []PeerState {
	var all []PeerState
	for _, name := range c.names {
		p := c.peers[name]
		all = append(all, PeerState{name, p.alive, p.up, now.Sub(p.lastFrame), len(p.tasks)})
	}
	return all
}

// numbered is a stream as a peer's frames name it.
type numbered struct {
	id      crdt.StreamID
	counted bool
}
