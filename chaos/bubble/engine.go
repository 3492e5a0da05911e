package bubble

import (
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/crdt"
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
	batches [][]kv.Op
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
	e.up, e.began, e.churn, e.batches = true, time.Now(), core.NewChurn(1, batchBlocks, cachedBlocks, false), nil
}

func (e *engine) die() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.up = false
}

// said returns the stream of the present life and its batches from one on; ok is
// false while it is down.
func (e *engine) said() (id crdt.StreamID, batches [][]kv.Op, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.up {
		return id, nil, false
	}
	for len(e.batches) < int(time.Since(e.began)/batchEvery) {
		_, batch, _ := e.churn.Next(0)
		e.batches = append(e.batches, batch)
	}
	return crdt.StreamID{Target: kv.Target{Worker: kv.WorkerID(e.n + 1), Rank: kv.NoRank}, Boot: e.boot}, e.batches, true
}
