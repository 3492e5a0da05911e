package indexbench

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/workload"
)

const (
	blockTokens = 128
	stepBlocks  = 64 // blocks of a prompt that one batch of events brings: a prefill step of 8192 tokens
)

// schedule is what a run plays: what the workers say and what is asked, each
// in the order of its time. A run of another speed scales the times.
type schedule struct {
	workers  int
	batches  []batch
	queries  []query
	duration int64 // ns of the trace: all times are below it
	blockOps int   // of all batches
}

// batch is one batch of a worker's events.
type batch struct {
	at     int64 // ns
	worker int
	seq    uint64 // of the worker
	ops    []kv.Op
}

// query is the lookup of one prompt.
type query struct {
	at   int64 // ns
	keys []kv.Key
}

// newSchedule makes a schedule of a trace: copies of it that share nothing,
// each request on a worker drawn from all. A worker caches held blocks and then
// evicts the one unused longest, of one prompt its end first. A prompt is
// looked up when it arrives, and the worker tells at the same moment what its
// cache took and gave up for it; answers aren't cached.
func newSchedule(trace []workload.Request, copies, workers, held int, seed uint64) *schedule {
	rng := clock.Rand(seed, "indexbench")
	s := &schedule{workers: workers}
	type arrival struct {
		at   int64
		req  *workload.Request
		copy int
	}
	var arrivals []arrival
	for c := range copies {
		jittered := workload.Jitter(trace, rng.Uint64())
		for i := range jittered {
			arrivals = append(arrivals, arrival{int64(jittered[i].At), &trace[i], c})
		}
	}
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	caches := make([]*cache, workers)
	for i := range caches {
		caches[i] = &cache{held: held, at: make(map[kv.Key]*list.Element)}
	}
	for _, a := range arrivals {
		contents := promptContents(a.req, a.copy)
		keys := make([]kv.Key, len(contents))
		parent := kv.Root("bench", "", "")
		for i, c := range contents {
			parent = kv.Next(parent, c)
			keys[i] = parent
		}
		s.duration = max(s.duration, a.at+1)
		s.queries = append(s.queries, query{a.at, keys})
		s.serve(a.at, rng.IntN(workers), caches, keys, contents)
	}
	return s
}

// promptContents names a prompt's whole blocks: an id of the trace is four.
func promptContents(r *workload.Request, copy int) []kv.Content {
	const per = workload.BlockTokens / blockTokens
	contents := make([]kv.Content, r.InputTokens/blockTokens)
	var b [24]byte
	binary.LittleEndian.PutUint64(b[16:], uint64(copy))
	for i := range contents {
		binary.LittleEndian.PutUint64(b[:], r.HashIDs[i/per])
		binary.LittleEndian.PutUint64(b[8:], uint64(i%per))
		contents[i] = kv.Content(xxh3.Hash(b[:]))
	}
	return contents
}

// serve lets a worker compute a prompt and appends what it says of it.
func (s *schedule) serve(at int64, worker int, caches []*cache, keys []kv.Key, contents []kv.Content) {
	c := caches[worker]
	keys = keys[:min(len(keys), c.held)] // of one that is longer it keeps the beginning
	have := 0
	for have < len(keys) && c.at[keys[have]] != nil {
		have++
	}
	evicted := c.use(keys)
	for from := have; from < len(keys); from += stepBlocks {
		to := min(from+stepBlocks, len(keys))
		in := kv.Op{Kind: kv.Insert, Root: kv.Root("bench", "", ""), BlockTokens: blockTokens, Blocks: make([]kv.Block, 0, to-from)}
		if from > 0 {
			in.HasParent, in.Parent = true, engineHash(keys[from-1])
		}
		for i := from; i < to; i++ {
			in.Blocks = append(in.Blocks, kv.Block{Hash: engineHash(keys[i]), Content: contents[i]})
		}
		ops := []kv.Op{in}
		if n := min(len(evicted), to-from); n > 0 { // room is made as it is needed
			out := kv.Op{Kind: kv.Remove, Hashes: make([]kv.EngineHash, n)}
			for i, k := range evicted[:n] {
				out.Hashes[i] = engineHash(k)
			}
			evicted = evicted[n:]
			ops = []kv.Op{out, in}
			s.blockOps += n
		}
		s.blockOps += to - from
		s.batches = append(s.batches, batch{at, worker, c.batches, ops})
		c.batches++
	}
}

// engineHash is a worker's own name of a block.
func engineHash(k kv.Key) kv.EngineHash { return kv.EngineHash(uint64(k)*0xd6e8feb86659fd93 + 1) }

// cache is what a worker holds.
type cache struct {
	held    int
	at      map[kv.Key]*list.Element
	used    list.List // of kv.Key, the one unused longest in front
	batches uint64
}

// use takes a prompt's blocks and returns those that left for them, in the
// order in which they left.
func (c *cache) use(keys []kv.Key) (evicted []kv.Key) {
	for _, k := range slices.Backward(keys) {
		if e := c.at[k]; e != nil {
			c.used.MoveToBack(e)
		} else {
			c.at[k] = c.used.PushBack(k)
		}
	}
	for c.used.Len() > c.held {
		k := c.used.Remove(c.used.Front()).(kv.Key)
		delete(c.at, k)
		evicted = append(evicted, k)
	}
	return evicted
}
