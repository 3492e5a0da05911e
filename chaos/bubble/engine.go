package bubble

import (
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// engine is a worker's log of KV events, which replays all it ever said in this
// life.
type engine struct {
	n int

	mu      sync.Mutex
	boot    kv.Boot
	up      bool
	began   time.Time
	churn   *core.Churn
	batches [][]kv.Op // nil: lost for good
	mute    bool      // all of them are
	silent  time.Time // since when it has nothing more to say; zero: it has
}

// The life of an engine: a batch of so many blocks every batchEvery, in a cache
// of so many.
const (
	batchEvery   = 100 * time.Millisecond
	batchBlocks  = 8
	cachedBlocks = 256
)

func newEngine(n int) *engine {
	e := &engine{n: n}
	e.begin()
	return e
}

// begin starts a life with an empty cache.
func (e *engine) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.boot++
	e.up, e.began, e.churn, e.batches, e.mute = true, time.Now(), core.NewChurn(1, batchBlocks, cachedBlocks, false), nil, false
}

func (e *engine) die() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.up = false
}

// hush has all that an engine says be lost for good, or no more.
func (e *engine) hush(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.speak()
	e.mute = on
}

// speak says what is due; e.mu is held.
func (e *engine) speak() {
	spoken := time.Since(e.began)
	if !e.silent.IsZero() {
		spoken = e.silent.Sub(e.began)
	}
	for len(e.batches) < int(spoken/batchEvery) {
		_, batch, _ := e.churn.Next(0)
		if e.mute {
			batch = nil
		}
		e.batches = append(e.batches, batch)
	}
}

// said returns the stream of the present life and its batches from one on; ok is
// false while it is down.
func (e *engine) said() (id crdt.StreamID, batches [][]kv.Op, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.up {
		return id, nil, false
	}
	e.speak()
	return crdt.StreamID{Target: kv.Target{Worker: kv.WorkerID(e.n + 1), Rank: kv.NoRank}, Boot: e.boot}, e.batches, true
}

// fallSilent ends what an engine has to say.
func (e *engine) fallSilent() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.silent = time.Now()
}

// truth is what its present life has said, all of it; false while it is down.
func (e *engine) truth() (chaos.Stream, bool) {
	_, batches, up := e.said()
	s := crdt.NewStream(crdt.StreamConfig{})
	for seq, batch := range batches {
		s.Apply(uint64(seq), batch, func(index.Change) {})
	}
	return chaos.Stream{Worker: e.n, Next: s.Next(), Digest: s.Digest()}, up
}
