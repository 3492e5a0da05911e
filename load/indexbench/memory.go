package indexbench

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// mixReport is the memory of one mix of entries. An entry is a block that a
// worker holds.
type mixReport struct {
	// Sharers is how many workers hold each block: 1 in the unique-heavy mix.
	Sharers int `json:"sharers"`
	Entries int `json:"entries"`
	// Core is the index's tables by their own account, All the growth of the
	// process's resident memory after the collector gave back what is free: index,
	// logs' bases with both their tables and counts. The rings that logs keep for
	// replicas to catch up have a limit of their own (max_ring_bytes) and are off.
	CoreBytes float64 `json:"bytes_per_entry_core"`
	AllBytes  float64 `json:"bytes_per_entry_all"`
	// GCPauseP99Micros is of collections while all of it was live.
	GCPauseP99Micros float64 `json:"gc_pause_p99_us"`
	// RemovalBlock is how long removing a worker, or emptying its slot when its
	// engine starts anew, keeps readers out of a shard at one go, by the CPU time of
	// who removes: a lookup waits at most once for it in each of the shards that it
	// looks into.
	RemovalBlockP99Micros float64 `json:"removal_block_p99_us"`
	RemovalBlockMaxMicros float64 `json:"removal_block_max_us"`
	// DropReader are lookups while workers with their part of the entries were
	// dropped, swept and filled anew; IdleReader as many without that: a reader that
	// the system puts aside for others waits too. Both are wall time.
	DropReaderP99Micros float64 `json:"drop_reader_p99_us"`
	DropReaderMaxMicros float64 `json:"drop_reader_max_us"`
	IdleReaderP99Micros float64 `json:"calibration_reader_p99_us"`
	IdleReaderMaxMicros float64 `json:"calibration_reader_max_us"`
}

// chainBlocks is how long the prompts of the mixes are.
const chainBlocks = 96

// measureMix fills an index and its logs with entries blocks that workers hold,
// each held by sharers of them.
func measureMix(ctx context.Context, entries, workers, sharers int) (*mixReport, error) {
	debug.FreeOSMemory()
	empty := residentBytes()
	g := newGround(workers, index.Config{MaxBytes: 8 << 30, Seed: 1}, crdt.LogConfig{MaxRingBytes: 1, MaxBaseBytes: 8 << 30})
	m := &mixReport{Sharers: sharers}
	seqs := make([]uint64, workers)
	var changes []index.Change
	fill := func(chain int) {
		for i := range sharers {
			w := (chain*7 + i*5) % workers
			changes = g.apply(w, seqs[w], []kv.Op{chainOp(uint64(chain))}, changes)
			seqs[w]++
		}
	}
	chains := entries / (chainBlocks * sharers)
	for chain := range chains {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fill(chain)
	}
	debug.FreeOSMemory()
	st := g.index.Stats()
	m.Entries = st.Holders
	m.CoreBytes = float64(st.Bytes) / float64(m.Entries)
	m.AllBytes = float64(residentBytes()-empty) / float64(m.Entries)

	before := newPauses()
	for range 20 {
		runtime.GC()
	}
	m.GCPauseP99Micros = before.p99Micros()
	from := time.Now()
	var holds []float64
	m.DropReaderP99Micros, m.DropReaderMaxMicros = g.lookupsDuring(chains, func() { holds = g.dropSome() })
	took := time.Since(from)
	m.IdleReaderP99Micros, m.IdleReaderMaxMicros = g.lookupsDuring(chains, func() { time.Sleep(took) })
	slices.Sort(holds)
	m.RemovalBlockP99Micros, m.RemovalBlockMaxMicros = quantile(holds, 0.99), quantile(holds, 1)
	return m, ctx.Err()
}

// chainOp is the events of a prompt of its own.
func chainOp(chain uint64) kv.Op {
	op := kv.Op{Kind: kv.Insert, Root: kv.Key(chain), BlockTokens: blockTokens, Blocks: make([]kv.Block, chainBlocks)}
	for i, k := range chainKeys(chain) {
		op.Blocks[i] = kv.Block{Hash: engineHash(k), Content: kv.Content(i)}
	}
	return op
}

func chainKeys(chain uint64) []kv.Key {
	keys := make([]kv.Key, chainBlocks)
	parent := kv.Key(chain)
	for i := range keys {
		parent = kv.Next(parent, kv.Content(i))
		keys[i] = parent
	}
	return keys
}

// maxLookups bounds how many lookups are timed.
const maxLookups = 1 << 20

// lookupsDuring returns the 99th percentile and the longest, in µs, of the
// lookups of a reader that looks up prompts while meanwhile runs.
func (g *ground) lookupsDuring(chains int, meanwhile func()) (p99, longest float64) {
	var done atomic.Bool
	var wg sync.WaitGroup
	took := make([]float64, 0, maxLookups)
	wg.Go(func() {
		prompts := make([][]kv.Key, 256)
		for i := range prompts {
			prompts[i] = chainKeys(uint64(i * max(1, chains/len(prompts))))
		}
		var hits []index.Hit
		for i := 0; i == 0 || !done.Load(); i++ { // at least one
			from := time.Now()
			hits = g.index.Match(prompts[i%len(prompts)], hits[:0])
			t := micros(time.Since(from))
			if longest = max(longest, t); len(took) < maxLookups {
				took = append(took, t)
			}
		}
	})
	meanwhile()
	done.Store(true)
	wg.Wait()
	slices.Sort(took)
	return quantile(took, 0.99), longest
}

// sweepCells are what the index sweeps under one hold of a shard's lock.
const sweepCells = 768

// dropSome drops the slots of some workers, one after the other, sweeps what
// was dropped, opens another for each and fills it from the worker's log. It
// returns how long each hold of a shard's lock took by the sweep, in µs of CPU
// time; two of them may count as one.
func (g *ground) dropSome() (holds []float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for w := range min(3, len(g.slots)) {
		g.index.Drop(g.slots[w])
		for left := 1; left > 0; {
			cpu, from := threadCPU(), time.Now()
			left = g.index.Sweep(sweepCells)
			took := time.Since(from)
			if used := threadCPU() - cpu; used > 0 {
				took = used
			}
			holds = append(holds, micros(took))
		}
		g.slots[w] = g.index.Open(index.HBMThenOneTier)
		var changes []index.Change
		g.streams[w].Each(func(c index.Change) {
			if changes = append(changes, c); len(changes) == 1024 {
				g.index.Apply(g.slots[w], changes)
				changes = changes[:0]
			}
		})
		g.index.Apply(g.slots[w], changes)
	}
	return holds
}
