package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/rhizome-router/rhizome/kv"
)

// Errors of Submit.
var (
	// ErrTooLarge: prompt and output together exceed what the pool can ever
	// give to one sequence.
	ErrTooLarge = errors.New("request exceeds the KV pool")
	// ErrInvalid: a field is out of range, or the ID is in use.
	ErrInvalid = errors.New("invalid request")
)

// Request is one sequence to compute.
type Request struct {
	ID           uint64 // unique among the requests in the worker
	PromptTokens int    // ≥ 1
	OutputTokens int    // ≥ 1, the first token included
	MaxTokens    int    // the output limit that the engine is told; 0: OutputTokens

	// Keys name the blocks of prompt and output, in order: Keys[i] stands for
	// everything up to the end of block i (a chained hash). Blocks past the
	// last key are never cached; nil turns caching off for this request. The
	// worker keeps the slice: it must not change any more.
	Keys []kv.EngineHash
}

// Worker is one engine. It is not safe for concurrent use.
type Worker struct {
	cfg       Config
	watermark int // blocks that admission may fill
	pool      pool
	tiers     []*lower
	journal   journal

	seqs       map[uint64]*seq // only looked up, never iterated
	waiting    []*seq          // by arrival; preempted ones in front
	running    []*seq          // admitted, oldest first
	prefilling []*seq          // those of running that still compute their prompt
	wheel      [][]*seq        // decoding ones by residue, see seq.residue
	cancels    []*seq          // to leave at the next iteration
	spare      []*seq          // for reuse
	blocked    bool            // the first of waiting does not fit until something is released
	preempted  bool            // somebody was since an iteration was formed
	lastArrive float64
	uploads    int32 // serial of the last one
	window     int   // blocks of the sliding window; 0: there is none
	ratio      tokenRatio

	moving, leaving []node // scratch of evictions

	decoding   int   // sequences in the wheel
	decodingKV int64 // their context tokens
	steps      int64 // decode steps completed
	nextFinish int64 // no decoding sequence finishes before steps reaches it

	now       float64
	it        iteration
	slowdown  float64
	everyStep bool // tests: form every iteration anew instead of jumping

	stats Stats
}

// New returns an idle worker at time 0 with an empty cache.
func New(cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return build(cfg), nil
}

// build returns a worker of a valid configuration.
func build(cfg Config) *Worker {
	blocks := cfg.PoolTokens / cfg.BlockTokens
	w := &Worker{
		cfg:       cfg,
		watermark: int(cfg.Watermark * float64(blocks)),
		pool:      newPool(blocks),
		seqs:      make(map[uint64]*seq),
		wheel:     make([][]*seq, cfg.BlockTokens),
		ratio:     tokenRatio{value: initialRatio},
		slowdown:  1,
	}
	w.window = w.blocksOf(cfg.Preset.WindowTokens)
	for _, t := range cfg.Tiers {
		if t.CapacityTokens >= cfg.BlockTokens {
			w.tiers = append(w.tiers, newLower(t, cfg.BlockTokens))
		}
	}
	return w
}

// Config returns the worker's configuration with every default filled in.
func (w *Worker) Config() Config { return w.cfg }

// MaxTokens returns how many tokens, prompt and output together, a request may
// have at most.
func (w *Worker) MaxTokens() int { return (w.watermark-w.windowCost())*w.cfg.BlockTokens + 1 }

// Submit queues a request that arrives at now; an instant before the last
// arrival counts as that one. Work starts in the next Advance, at the first
// iteration that forms at or after now. Errors: ErrTooLarge, ErrInvalid.
func (w *Worker) Submit(now float64, r Request) error {
	const limit = 1 << 30
	if r.PromptTokens < 1 || r.OutputTokens < 1 || r.PromptTokens > limit || r.OutputTokens > limit {
		return fmt.Errorf("engine model: submit request %d with %d prompt and %d output tokens, each must be in 1…%d: %w",
			r.ID, r.PromptTokens, r.OutputTokens, limit, ErrInvalid)
	}
	if r.MaxTokens != 0 && r.MaxTokens < r.OutputTokens {
		return fmt.Errorf("engine model: submit request %d with %d output tokens and a limit of %d, give at least as many or 0: %w",
			r.ID, r.OutputTokens, r.MaxTokens, ErrInvalid)
	}
	if _, dup := w.seqs[r.ID]; dup || math.IsNaN(now) {
		return fmt.Errorf("engine model: submit request %d at %v: ID in use or no time: %w", r.ID, now, ErrInvalid)
	}
	// The last token's KV is never computed.
	if need := w.blocksOf(r.PromptTokens+r.OutputTokens-1) + w.windowCost(); need > w.watermark {
		return fmt.Errorf("engine model: request %d needs %d KV blocks, admission gives at most %d: %w", r.ID, need, w.watermark, ErrTooLarge)
	}
	s := w.newSeq()
	w.lastArrive = max(now, w.lastArrive, w.now)
	s.Request, s.arrival, s.state, s.admitted = r, w.lastArrive, waiting, -1
	w.seqs[r.ID] = s
	w.waiting = append(w.waiting, s)
	w.stats.Requests++
	w.stats.PromptTokens += int64(r.PromptTokens)
	return nil
}

// Cancel withdraws a request. A waiting one is gone at once; an admitted one
// leaves at the next iteration, or when its load from a lower tier is done,
// and is then told as Cancelled (or Finished, if that comes first). It reports
// whether the request has gone at once, so that no event will tell of it; an
// unknown ID gives false.
func (w *Worker) Cancel(id uint64) (gone bool) {
	s := w.seqs[id]
	if s == nil || s.cancelled {
		return false
	}
	s.cancelled = true
	w.stats.Cancelled++
	if s.state != waiting {
		w.cancels = append(w.cancels, s)
		return false
	}
	i := slices.Index(w.waiting, s)
	w.waiting = slices.Delete(w.waiting, i, i+1)
	if i == 0 {
		w.blocked = false
	}
	w.drop(s)
	return true
}

// Next returns when to call Advance next so as to learn of everything but
// decode tokens and the blocks they fill in time: nothing else happens before.
// ok is false when nothing will happen without a new request.
func (w *Worker) Next() (at float64, ok bool) {
	if !w.it.active {
		return w.wake()
	}
	if !w.it.decodeOnly || w.it.disturbed || len(w.cancels) > 0 {
		return w.it.end, true
	}
	// A stretch of decodes runs until a sequence finishes, the pool may have
	// run out, a load is done or a request arrives.
	k := int(max(w.nextFinish-w.steps, 1))
	each := 1 + w.windowCost() // blocks that a sequence takes at most while it fills one
	k = min(k, max(1, w.pool.available()/(each*w.decoding)*w.cfg.BlockTokens))
	until := w.nextLoad()
	if len(w.waiting) > 0 && !w.blocked {
		until = min(until, w.waiting[0].arrival)
	}
	if w.it.endAfter(k, w.cfg.Timing) > until {
		k = 1 + sort.Search(k-1, func(i int) bool { return w.it.endAfter(i+1, w.cfg.Timing) >= until })
	}
	return w.it.endAfter(k, w.cfg.Timing), true
}

// NextIteration returns when the current iteration ends, or Next when there is
// none: when to call Advance and ReportTokens to see each token at its time.
func (w *Worker) NextIteration() (at float64, ok bool) {
	if w.it.active {
		return w.it.end, true
	}
	return w.wake()
}

// wake returns when an idle worker starts to work.
func (w *Worker) wake() (at float64, ok bool) {
	at = w.nextLoad()
	if len(w.waiting) > 0 && !w.blocked {
		at = min(at, w.waiting[0].arrival)
	}
	return max(at, w.now), !math.IsInf(at, 1)
}

// Advance lets everything happen that happens up to and including t, and tells
// sink of it. Many small steps and one large one give the same result.
func (w *Worker) Advance(t float64, sink Sink) {
	for {
		if !w.it.active {
			at, ok := w.wake()
			if !ok || at > t {
				break
			}
			w.now = at
			w.form(at, sink)
			continue
		}
		if w.it.end > t {
			break
		}
		w.now = w.it.end
		w.finish(sink)
		w.follow(sink)
	}
	w.now = max(w.now, t)
}

func (w *Worker) blocksOf(tokens int) int {
	return (tokens + w.cfg.BlockTokens - 1) / w.cfg.BlockTokens
}
