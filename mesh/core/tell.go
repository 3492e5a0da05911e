package core

import (
	"math"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt/wire"
)

// Topic is what words from one replica to another are about. The core passes
// them on and does not look into them.
type Topic uint8

// The topics.
const (
	// Agreement: what the replicas that agree by Raft say beside it.
	Agreement Topic = iota
	// Agreed: what was agreed on, for those that follow.
	Agreed
	NumTopics = 2
)

// MaxToldBytes bounds one telling.
const MaxToldBytes = 1 << 20

// Tell sends words to one peer; all that are up if to is empty. They arrive once
// or, if the connection ends or is full, not at all; it reports whether there is
// a connection. More than [MaxToldBytes] are not sent.
func (c *Core) Tell(to string, t Topic, words []byte) bool {
	if p := c.peers[to]; to != "" && (p == nil || !p.up) || len(words) > MaxToldBytes {
		return false
	}
	w := begin(frameTold, 2)
	w.Uint(uint64(t))
	w.Data(words)
	return c.send(to, Live, w.Bytes()) > 0
}

func (c *Core) readTold(now clock.Instant, p *peer, r *wire.Reader) {
	t, words := Topic(r.Uint(math.MaxUint8)), r.Data(MaxToldBytes)
	if r.Err() == nil && t < NumTopics { // a later minor version may have more
		c.sink.Told(p.name, t, words)
	}
}
