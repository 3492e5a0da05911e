package core

import (
	"cmp"
	"slices"

	"github.com/rhizome-router/rhizome/crdt"
)

// StreamsState is how a replica stands with the streams it holds.
type StreamsState struct {
	Held    int
	Unkeyed int // blocks without a key, for their parent is unknown
	// Behind lists the streams of which a peer has more, those that lack most
	// first.
	Behind []Lag
	Log    crdt.LogStats
}

// Lag is how far a stream is behind a peer's.
type Lag struct {
	ID crdt.StreamID
	// Batches is how many a peer is ahead, as far as known, and Waiting how many
	// are here that wait for one before them.
	Batches uint64
	Waiting int
}

// Streams returns how the streams stand.
func (c *Core) Streams() StreamsState {
	state := StreamsState{Held: len(c.streams), Log: c.log.Stats()}
	for _, s := range c.sorted() {
		stats := s.log.Stats()
		state.Unkeyed += stats.Unkeyed
		lag := Lag{ID: s.id, Waiting: stats.PendingBatches}
		if next := s.log.Next(); s.further > next {
			lag.Batches = s.further - next
		}
		if lag.Batches > 0 || lag.Waiting > 0 {
			state.Behind = append(state.Behind, lag)
		}
	}
	slices.SortStableFunc(state.Behind, func(a, b Lag) int {
		return cmp.Or(cmp.Compare(b.Batches, a.Batches), cmp.Compare(b.Waiting, a.Waiting))
	})
	return state
}

// Values returns how many values are on the pages of all replicas, by kind.
func (c *Core) Values() (n [NumKinds]int) {
	for k := range c.own {
		n[k] = c.own[k].page.Len()
	}
	for id, p := range c.pages { // order-free: a sum
		n[id.kind] += p.copy.Len()
	}
	return n
}

// Refused counts what was over a bound, rows of tables included.
func (c *Core) Refused() uint64 {
	n := c.stats.Refused
	for _, t := range c.tables {
		n += t.Refused()
	}
	return n
}
