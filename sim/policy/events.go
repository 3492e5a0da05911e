package policy

import (
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// indexBytes bounds one event-fed index: enough for 240 workers of 100,000
// blocks that are all different.
const indexBytes = 4 << 30

// events is an index of all workers' caches as their KV events tell them, each
// batch after the one before. A worker that is down may have restarted, and
// tell of its new cache, before a replica hears that it is back, so batches
// count whether it is up or not.
type events struct {
	index   *index.Index
	slots   []index.Slot // by worker
	owners  []int        // by slot
	started []bool       // by worker: a batch came since its slot was opened
	changes []index.Change
}

func newEvents(cfg Config) *events {
	e := &events{
		index:   index.New(index.Config{MaxBytes: indexBytes, Seed: cfg.Seed}),
		slots:   make([]index.Slot, cfg.Workers),
		started: make([]bool, cfg.Workers),
	}
	for w := range e.slots {
		e.open(w)
	}
	return e
}

func (e *events) open(worker int) {
	slot := e.index.Open(index.HBMThenOneTier)
	e.slots[worker], e.started[worker] = slot, false
	for len(e.owners) <= int(slot) {
		e.owners = append(e.owners, 0)
	}
	e.owners[slot] = worker
}

// forget empties a worker's part.
func (e *events) forget(worker int) {
	e.index.Drop(e.slots[worker])
	e.open(worker)
}

// apply takes in what a worker's engine did. Number 0 is the first of a new
// life, whose cache starts empty.
func (e *events) apply(worker int, b *Batch) {
	if b.Seq == 0 && e.started[worker] {
		e.forget(worker)
	}
	e.started[worker] = true
	e.changes = e.changes[:0]
	for _, c := range b.Changes {
		e.changes = append(e.changes, index.Change{Key: c.Key, Tier: c.Tier, Present: c.Present})
	}
	e.index.Apply(e.slots[worker], e.changes)
}

// matcher reads an event index, which it may share with others.
type matcher struct {
	*events
	hits []index.Hit
	runs []index.Run
}

func newMatcher(e *events) matcher {
	return matcher{events: e, runs: make([]index.Run, len(e.slots))}
}

// match returns by worker how far a prompt is found there. The slice is valid
// until the next call.
func (m *matcher) match(keys []kv.Key) []index.Run {
	clear(m.runs)
	m.hits = m.index.Match(keys, m.hits[:0])
	for i := range m.hits {
		m.runs[m.owners[m.hits[i].Slot]] = m.hits[i].Run
	}
	return m.runs
}
