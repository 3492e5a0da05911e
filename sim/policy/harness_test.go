package policy

import (
	"math"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

const testBlock = 100 // tokens

func (r *replica) self() *replica { return r }

// inner returns what every rule has inside.
func inner(r Router) *replica { return r.(interface{ self() *replica }).self() }

// alone returns the one replica of a rule over some workers.
func alone(workers int, m Maker) Router {
	return m(Config{Workers: workers, Replicas: 1, BlockTokens: testBlock, Seed: 1})[0]
}

// chain returns the keys of a prompt that begins with the same blocks as every
// other of the same name.
func chain(name, blocks int) []kv.Key {
	keys := make([]kv.Key, 0, blocks)
	at := kv.Key(name)
	for i := range blocks {
		at = kv.Next(at, kv.Content(i))
		keys = append(keys, at)
	}
	return keys
}

// ask is a request for a prompt of whole blocks and a bit.
func ask(id uint64, keys []kv.Key) *Request {
	return &Request{ID: id, Keys: keys, BlockTokens: testBlock, PromptTokens: testBlock*len(keys) + 50}
}

// stored tells that a worker has blocks on a tier, as its batch number seq.
func stored(r Router, worker int, seq uint64, tier kv.Tier, keys []kv.Key) {
	changed(r, worker, seq, tier, keys, true)
}

func changed(r Router, worker int, seq uint64, tier kv.Tier, keys []kv.Key, present bool) {
	b := &Batch{Seq: seq}
	for _, k := range keys {
		b.Changes = append(b.Changes, Change{Key: k, Tier: tier, Present: present})
	}
	r.Events(0, worker, b)
}

// busy books n requests of so many tokens to compute on a worker.
func busy(r Router, worker, n, prefillTokens int) {
	in := inner(r)
	for range n {
		id := uint64(1_000_000 + len(in.book.byID))
		in.book.add(id, worker, prefillTokens, nil)
	}
}

func known(x float64) engine.Value { return engine.Value{Value: x, Known: true} }

func wantWorker(t *testing.T, what string, c Choice, worker int) {
	t.Helper()
	if c.Worker != worker {
		t.Errorf("%s: went to worker %d, want %d", what, c.Worker, worker)
	}
}

func wantNear(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// choices asks a fresh replica for the same thing n times over, each request
// being done before the next, and counts where it went.
func choices(r Router, n int, keys []kv.Key) map[int]int {
	at := map[int]int{}
	for i := range n {
		id := uint64(i + 1)
		at[r.Choose(clock.Instant(i), ask(id, keys)).Worker]++
		r.Done(clock.Instant(i), id, Usage{})
	}
	return at
}
