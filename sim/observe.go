package sim

import (
	"math/rand/v2"
	"time"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/sim/policy"
)

// journal turns one worker's events into the batches that its engine
// publishes: one for each step that changed the cache.
type journal struct {
	blockTokens int
	root        kv.Key
	at          float64
	seq         uint64
	ops         []kv.Op
	// copies counts the copies of a key on a tier, for Batch.Changes; nil where
	// nobody reads those.
	copies  *crdt.Stream
	changes bool
	send    func(at float64, b *policy.Batch)
}

func newJournal(blockTokens int, root kv.Key, changes bool, send func(at float64, b *policy.Batch)) *journal {
	j := &journal{blockTokens: blockTokens, root: root, changes: changes, send: send}
	j.restart()
	return j
}

// restart begins a new life of the worker.
func (j *journal) restart() {
	j.seq, j.ops = 0, nil
	if j.changes {
		j.copies = crdt.NewStream(crdt.StreamConfig{Counted: true, MaxBlocks: maxWorkerBlocks})
		j.copies.Start(0)
	}
}

// maxWorkerBlocks bounds what one worker's tiers may hold.
const maxWorkerBlocks = 16<<20 - 2

// add takes an event of the cache. contents are those of the request's blocks,
// from the first on, where the event is of a request.
func (j *journal) add(e *model.Event, contents []kv.Content) {
	if len(j.ops) > 0 && e.At != j.at {
		j.flush()
	}
	j.at = e.At
	switch {
	case e.Kind == model.Cleared:
		j.ops = append(j.ops, kv.Op{Kind: kv.Clear, Tiers: e.Tier.Mask()})
	case e.Kind == model.Removed:
		j.ops = append(j.ops, kv.Op{Kind: kv.Remove, Tier: e.Tier, Hashes: append([]kv.EngineHash(nil), e.Blocks...)})
	case contents == nil: // it moved down, and is known
		j.ops = append(j.ops, kv.Op{Kind: kv.Also, Tier: e.Tier, Hashes: append([]kv.EngineHash(nil), e.Blocks...)})
	default:
		op := kv.Op{Kind: kv.Insert, Tier: e.Tier, HasParent: e.HasParent, Parent: e.Parent, BlockTokens: uint32(j.blockTokens)}
		if !e.HasParent {
			op.Root = j.root
		}
		op.Blocks = make([]kv.Block, len(e.Blocks))
		for i, h := range e.Blocks {
			op.Blocks[i] = kv.Block{Hash: h, Content: contents[e.First+i]}
		}
		j.ops = append(j.ops, op)
	}
}

// flush publishes what has been gathered.
func (j *journal) flush() {
	if len(j.ops) == 0 {
		return
	}
	b := &policy.Batch{Seq: j.seq, Ops: j.ops}
	if j.copies != nil {
		j.copies.Apply(j.seq, j.ops, func(c index.Change) {
			b.Changes = append(b.Changes, policy.Change{Key: c.Key, Tier: c.Tier, Present: c.Present})
		})
	}
	j.seq++
	j.ops = nil
	j.send(j.at, b)
}

// wire is the way of one worker's events to one replica: batches arrive in
// order, late, and where one was lost, all after it wait for its replay.
type wire struct {
	rand      *rand.Rand
	delay     time.Duration
	loss      float64
	spread    time.Duration // delays are even up to this, not around delay; 0: around delay
	forgets   bool          // nothing is replayed
	lastAt    float64
	connected bool
}

// replayMicros is how long it takes to notice a lost batch and get it again.
const replayMicros = 250_000

// arrival returns when a batch sent at a moment arrives, or that it is lost.
func (w *wire) arrival(at float64) (t float64, lost bool) {
	if w.spread > 0 {
		t = at + micros(w.spread)*w.rand.Float64()
	} else {
		t = at + float64(w.delay.Microseconds())*(0.5+w.rand.ExpFloat64()/2)
	}
	if w.loss > 0 && w.rand.Float64() < w.loss {
		if w.forgets {
			return 0, true
		}
		t += replayMicros
	}
	w.lastAt = max(w.lastAt, t)
	return w.lastAt, false
}

// look is what a scrape of a worker shows, by profile.
func look(p Profile, w *model.Worker) engine.RankTelemetry {
	s, cfg := w.Stats(), w.Config()
	told := func(x float64) engine.Value { return engine.Value{Value: x, Known: true} }
	t := engine.RankTelemetry{
		Running: told(float64(s.Running)), Waiting: told(float64(s.Waiting)),
		KVUsage:     told(float64(s.HBM.UsedBlocks) / float64(max(1, s.HBM.CapacityBlocks))),
		BlockTokens: told(float64(cfg.BlockTokens)), HBMTokens: told(float64(cfg.PoolTokens)),
	}
	if p == SGLangLoads {
		t.WaitingTokens, t.MaxSeqs = told(float64(w.WaitingTokens())), told(float64(cfg.MaxSeqs))
		return t
	}
	t.PrefixQueriesTokens, t.PrefixHitsTokens = told(float64(s.QueriedTokens)), told(float64(s.HBMHitTokens))
	t.InterTokens, t.InterTokenSeconds = told(float64(s.InterTokens)), told(s.InterTokenMicros/1e6)
	t.Prefills, t.PrefillSeconds = told(float64(s.FirstTokens)), told(s.AdmittedMicros/1e6)
	t.PrefilledTokens = told(float64(s.PrefilledTokens))
	if p == VLLMOffload {
		t.ExternalQueriesTokens, t.ExternalHitsTokens = told(float64(s.QueriedTokens-s.HBMHitTokens)), told(float64(s.ExternalHitTokens))
		for _, l := range s.Lower {
			tier := &t.Tiers[l.Tier]
			tier.LoadBytes, tier.LoadSeconds = told(float64(l.LoadedBytes)), told(l.LoadedMicros/1e6)
			tier.StoreBytes = told(float64(l.StoredBytes))
		}
	}
	return t
}
