package indexbench

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// ground is what a router keeps of its workers' caches: a stream log and an
// index slot of each.
type ground struct {
	index   *index.Index
	log     *crdt.Log
	streams []*crdt.Stream
	slots   []index.Slot
}

func newGround(workers int, cfg index.Config, logs crdt.LogConfig) *ground {
	g := &ground{index: index.New(cfg), log: crdt.NewLog(logs)}
	for w := range workers {
		g.streams = append(g.streams, g.log.Open(crdt.StreamID{Target: kv.Target{Worker: kv.WorkerID(w)}}, crdt.StreamConfig{Counted: true}))
		g.slots = append(g.slots, g.index.Open(index.HBMThenOneTier))
	}
	return g
}

// apply applies a batch as the fleet does. changes is memory to use.
func (g *ground) apply(worker int, seq uint64, ops []kv.Op, changes []index.Change) []index.Change {
	changes = changes[:0]
	g.streams[worker].Apply(seq, ops, func(c index.Change) { changes = append(changes, c) })
	g.index.Apply(g.slots[worker], changes)
	return changes
}

// outcome is what a replay came to.
type outcome struct {
	applied   time.Duration // from the start until the last batch was applied
	applyCPU  time.Duration // of the thread that applied
	lookups   []float64     // µs each took, sorted
	lags      []float64     // µs from a batch's time until it was applied, sorted
	reached   int           // blocks of all prompts up to the first that nobody holds, that one included
	asked     int           // blocks of all prompts
	onTime    bool          // the last batch was applied within 1.1 × window
	finalSize index.Stats
}

// replay plays a schedule, its whole time scaled to window, into a new ground.
// Two threads take their work when its time has come and not when they are done
// with what was before: who is late has a queue. It ends when both queues are
// empty. With window 0 all is due at once.
func (s *schedule) replay(ctx context.Context, window time.Duration) (*outcome, *ground) {
	g := newGround(s.workers, index.Config{Seed: 1}, crdt.LogConfig{})
	o := &outcome{lookups: make([]float64, 0, len(s.queries)), lags: make([]float64, 0, len(s.batches))}
	scale := float64(window) / float64(s.duration)
	runtime.GC()
	var wg sync.WaitGroup
	start := time.Now()
	due := func(at int64) time.Duration { return time.Duration(float64(at) * scale) }
	wg.Go(func() { // the applier
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cpu := threadCPU()
		var changes []index.Change
		for i := range s.batches {
			b := &s.batches[i]
			at := due(b.at)
			if await(ctx, start, at) != nil {
				return
			}
			changes = g.apply(b.worker, b.seq, b.ops, changes)
			o.lags = append(o.lags, micros(time.Since(start)-at))
		}
		o.applied = time.Since(start)
		if o.applyCPU = threadCPU() - cpu; o.applyCPU == 0 {
			o.applyCPU = o.applied
		}
	})
	wg.Go(func() { // who asks
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var hits []index.Hit
		for i := range s.queries {
			q := &s.queries[i]
			if await(ctx, start, due(q.at)) != nil {
				return
			}
			from := time.Now()
			hits = g.index.Match(q.keys, hits[:0])
			o.lookups = append(o.lookups, micros(time.Since(from)))
			o.asked += len(q.keys)
			o.reached += reached(q.keys, hits)
		}
	})
	wg.Wait()
	slices.Sort(o.lookups)
	slices.Sort(o.lags)
	o.onTime = o.applied <= window+window/10
	o.finalSize = g.index.Stats()
	return o, g
}

// reached returns how many of a prompt's blocks a lookup that goes from one to
// the next sees.
func reached(keys []kv.Key, hits []index.Hit) int {
	longest := 0
	for i := range hits {
		longest = max(longest, hits[i].Len())
	}
	return min(longest+1, len(keys))
}

// await waits until at, counted from start: asleep at first and awake for the
// last spin, for who sleeps wakes late, with cold caches. Where the two threads
// would have to share a core, it sleeps only.
func await(ctx context.Context, start time.Time, at time.Duration) error {
	left := at - time.Since(start)
	switch {
	case left <= 0:
		return nil
	case runtime.GOMAXPROCS(0) < 2:
		time.Sleep(left)
	default:
		if left > 2*spin {
			time.Sleep(left - spin)
		}
		for time.Since(start) < at {
		}
	}
	return ctx.Err()
}

const spin = 2 * time.Millisecond

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// askAll looks up all prompts one after the other and returns how many a second
// of CPU time that is.
func (s *schedule) askAll(g *ground) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu, from := threadCPU(), time.Now()
	var hits []index.Hit
	for i := range s.queries {
		hits = g.index.Match(s.queries[i].keys, hits[:0])
	}
	took := threadCPU() - cpu
	if took == 0 {
		took = time.Since(from)
	}
	return float64(len(s.queries)) / took.Seconds()
}
