package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/lease"
	"github.com/rhizome-router/rhizome/sim/policy"
	"github.com/rhizome-router/rhizome/workload"
)

// Speculation is an experiment: chat on a fleet whose events come late or not at
// all, whose workers turn requests away and restart, and whose replicas are
// killed, while what was promised of requests on their way is settled between
// them. It asks what the replicas' indexes are worth then.
type Speculation struct {
	// EventDelay is how late a batch of events is at most, and on average half
	// that; it never passes one before it. EventLoss is the share of batches that
	// are lost; they are replayed unless NoReplay.
	EventDelay time.Duration
	EventLoss  float64
	NoReplay   bool
	// Refuse is the share of requests that workers turn away.
	Refuse            float64
	Workers, Replicas int
	Length            time.Duration // of the work that comes in
	Seed              uint64
}

// SpeculationResult is what came of it.
type SpeculationResult struct {
	Requests, Failed    int
	Fences, Checkpoints int
	// Held is how many blocks the workers held in the end, on any tier, summed over
	// the replicas that knew of them or not; Known how many the replicas' indexes
	// had, promised ones included, and Right those of them that were held.
	Held, Known, Right int
	// Tickets is how many promises were still open then, and Diverged how often a
	// stream contradicted an agreed mark.
	Tickets  int
	Diverged uint64
	// Compared counts the requests that both this run and one in which every index
	// knows at once what happened answered; TTFT is the sum of their times to the
	// first token here, Ideal there.
	Compared    int
	TTFT, Ideal time.Duration
}

// Precision is the share of what the indexes had that was so; 1 if they had
// nothing.
func (r *SpeculationResult) Precision() float64 {
	if r.Known == 0 {
		return 1
	}
	return float64(r.Right) / float64(r.Known)
}

// Recall is the share of what was so that the indexes had.
func (r *SpeculationResult) Recall() float64 { return float64(r.Right) / float64(max(1, r.Held)) }

// Regret is how much longer first tokens took for want of a perfect index, as a
// share.
func (r *SpeculationResult) Regret() float64 {
	return r.TTFT.Seconds()/max(r.Ideal.Seconds(), 1e-9) - 1
}

// Add adds another seed's result.
func (r *SpeculationResult) Add(o *SpeculationResult) {
	for _, x := range [...]struct{ to, from *int }{
		{&r.Requests, &o.Requests}, {&r.Failed, &o.Failed}, {&r.Fences, &o.Fences}, {&r.Checkpoints, &o.Checkpoints},
		{&r.Held, &o.Held}, {&r.Known, &o.Known}, {&r.Right, &o.Right}, {&r.Tickets, &o.Tickets}, {&r.Compared, &o.Compared},
	} {
		*x.to += *x.from
	}
	r.Diverged += o.Diverged
	r.TTFT, r.Ideal = r.TTFT+o.TTFT, r.Ideal+o.Ideal
}

// RegretInterval returns the regret over several seeds, and the half-width of its
// 95 % interval: of a quotient of sums, from by how much each seed's sum is off the
// common quotient (Cochran, Sampling Techniques, §2.11), by Student's t. It is 0 of
// a single seed.
func RegretInterval(seeds []*SpeculationResult) (regret, half float64) {
	var sum SpeculationResult
	for _, r := range seeds {
		sum.Add(r)
	}
	regret = sum.Regret()
	off := make([]float64, len(seeds))
	for i, r := range seeds {
		off[i] = r.TTFT.Seconds() - (1+regret)*r.Ideal.Seconds()
	}
	_, half = interval(off)
	return regret, half * float64(len(seeds)) / max(sum.Ideal.Seconds(), 1e-9)
}

// SpeculationBounds are what is promised where lost events are replayed.
const (
	LeastPrecision, LeastRecall = 0.99, 0.99
	MostRegret                  = 0.03
)

// Speculations are the experiment's settings, from no trouble to all that is
// bounded, and then two without replay, which is not.
func Speculations() []Speculation {
	return []Speculation{
		troubled(100*time.Millisecond, 0, 0, false),
		troubled(time.Second, 0.01, 0.02, false),
		troubled(2500*time.Millisecond, 0.025, 0.05, false),
		troubled(5*time.Second, 0.05, 0.1, false),
		troubled(time.Second, 0.001, 0.02, true),
		troubled(5*time.Second, 0.05, 0.1, true),
	}
}

// SpeculationGrid is every combination of no, half and all of each trouble that
// is bounded.
func SpeculationGrid() (all []Speculation) {
	for _, delay := range []time.Duration{0, 2500 * time.Millisecond, 5 * time.Second} {
		for _, loss := range []float64{0, 0.025, 0.05} {
			for _, refuse := range []float64{0, 0.05, 0.1} {
				all = append(all, troubled(delay, loss, refuse, false))
			}
		}
	}
	return all
}

func troubled(delay time.Duration, loss, refuse float64, noReplay bool) Speculation {
	x := DefaultSpeculation()
	x.EventDelay, x.EventLoss, x.Refuse, x.NoReplay = delay, loss, refuse, noReplay
	return x
}

// DefaultSpeculation returns the experiment without any trouble with events.
func DefaultSpeculation() Speculation {
	return Speculation{Workers: 8, Replicas: 3, Length: time.Minute, Seed: 1}
}

// instantly is how late everything is under a perfect index.
const instantly = time.Millisecond

// Play plays it.
func (x Speculation) Play(ctx context.Context) (*SpeculationResult, error) {
	ideal, err := x.Perfect(ctx)
	if err != nil {
		return nil, err
	}
	return x.Against(ctx, ideal)
}

// Perfect is a run in which every index knows at once what happened.
type Perfect struct{ courses []*Course }

// Perfect plays the experiment with a perfect index: the same for all that differ
// in how late events are and how many are lost.
func (x Speculation) Perfect(ctx context.Context) (*Perfect, error) {
	x.EventDelay, x.EventLoss, x.NoReplay = 0, 0, false
	run, err := x.play(ctx)
	if err != nil {
		return nil, err
	}
	return &Perfect{run.stage.courses}, nil
}

// Against plays the experiment and compares it with a perfect index.
func (x Speculation) Against(ctx context.Context, ideal *Perfect) (*SpeculationResult, error) {
	run, err := x.play(ctx)
	if err != nil {
		return nil, err
	}
	r := run.result
	for i, c := range run.stage.courses {
		o := ideal.courses[i]
		if c == nil || o == nil || c.First == 0 || o.First == 0 {
			continue
		}
		r.Compared++
		r.TTFT += c.First - c.Arrived
		r.Ideal += o.First - o.Arrived
	}
	return &r, nil
}

// speculating is one run of the experiment.
type speculating struct {
	x      Speculation
	stage  *Stage
	agreed *agreement
	result SpeculationResult
	over   bool // measured
	err    error
}

func (x Speculation) play(ctx context.Context) (*speculating, error) {
	sc := Default()
	sc.Name, sc.Replicas, sc.Fleet.Workers = "speculation", x.Replicas, x.Workers
	sc.Workload = Workload{Kind: Chat, Speed: 1, Seconds: x.Length.Seconds()}
	sc.Network.EventDelay, sc.Network.EventLoss = instantly, x.EventLoss
	if x.EventDelay == 0 && x.EventLoss == 0 {
		sc.Network.GossipDelay = instantly
	}
	s, err := NewStage(StageConfig{Scenario: sc, Seed: x.Seed, Column: Learned, Until: x.Length, End: x.Length, Limit: x.Length + 10*time.Minute,
		Quiet: time.Second, EventSpread: x.EventDelay, Refuse: x.Refuse, NoReplay: x.NoReplay})
	if err != nil {
		return nil, err
	}
	r := &speculating{x: x, stage: s, agreed: s.agree()}
	s.stays = func() bool { return !r.over }
	r.troubles()
	r.measured(ctx)
	if err := s.Play(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("speculation: %w", err)
	}
	if r.err != nil {
		return nil, r.err
	}
	for _, c := range s.Courses() {
		r.result.Requests++
		if c.Failed && !c.Orphaned {
			r.result.Failed++
		}
	}
	r.result.Fences, r.result.Checkpoints = r.agreed.Fences, r.agreed.Checkpoints
	return r, nil
}

// troubles plans what dies: a worker each fifth of the run, back empty after a
// tenth; a replica at a fourth and another at half of it, back after a tenth as
// one that nobody knows; and a live replica is taken for dead at 3/4.
func (r *speculating) troubles() {
	s, n := r.stage, r.x.Length
	for i := range 4 {
		k := i % r.x.Workers
		s.At(n*time.Duration(i+1)/5, func() { s.Power(k, false) })
		s.At(n*time.Duration(2*i+3)/10, func() { s.Power(k, true) })
	}
	for i := range min(2, r.x.Replicas-1) {
		s.At(n*time.Duration(i+1)/4, func() { r.agreed.died(i); s.Crash(i) })
		s.At(n*time.Duration(i+1)/4+n/10, func() {
			if err := s.Start(i); err != nil {
				r.err = err
			}
		})
	}
	last := s.w.replicas[r.x.Replicas-1]
	s.At(n*3/4, func() { r.agreed.propose(lease.Command{Kind: lease.Fence, Origin: last.mesh.self()}) })
}

// measured measures two seconds after the last event has arrived. When all
// requests have ended each worker says one thing more, which shows who missed
// what was before it.
func (r *speculating) measured(ctx context.Context) {
	s := r.stage
	var look func()
	look = func() {
		switch {
		case ctx.Err() != nil || r.err != nil:
			r.over = true
		case s.w.open > 0 || s.Now() < r.x.Length+rejoined:
			s.At(s.Now()+time.Second, look)
		default:
			at := max(s.Now(), r.lastWords()) + settled
			s.At(at, func() { r.measure(); r.over = true })
		}
	}
	s.At(r.x.Length, look)
}

const (
	// rejoined is when after the work's end every replica reads what it is to read.
	rejoined = 5 * time.Second
	// settled is how long after the last event indexes are looked at.
	settled = 2 * time.Second
)

// lastWords has each worker publish a batch that changes nothing, and returns
// when the last of all batches arrives.
func (r *speculating) lastWords() time.Duration {
	w, last := r.stage.w, 0.0
	for _, k := range w.workers {
		if k.up {
			w.advance(k, micros(r.stage.Now()))
			w.publish(k, micros(r.stage.Now()), &policy.Batch{Seq: k.journal.seq, Ops: []kv.Op{{Kind: kv.Remove, Hashes: []kv.EngineHash{0}}}})
			k.journal.seq++
		}
	}
	for _, p := range w.replicas {
		for i := range p.wires {
			last = max(last, p.wires[i].lastAt)
		}
	}
	return span(last)
}

// measure compares the replicas' indexes with what the workers hold.
func (r *speculating) measure() {
	w := r.stage.w
	keys := make(map[kv.Key]bool)
	for i := range w.plan.Jobs {
		j := &w.plan.Jobs[i]
		all, _ := workload.Blocks(w.root(), j.Prompt, j.Answer, w.sc.BlockTokens)
		for _, k := range all {
			keys[k] = true
		}
	}
	for _, k := range w.workers {
		if !k.up {
			continue
		}
		truth := make(map[kv.Key]kv.TierMask)
		for _, t := range [...]kv.Tier{kv.HBM, kv.CPU} {
			for h := range k.engine.Cached(t) {
				truth[kv.Key(h)] |= t.Mask()
				keys[kv.Key(h)] = true
			}
		}
		for _, p := range w.replicas {
			r.compare(p.mesh, k.n, keys, truth)
		}
	}
	for _, p := range w.replicas {
		state := r.stage.Replica(p.n)
		r.result.Tickets += state.Index.Tickets
		r.result.Diverged += state.Stats.Diverged
	}
}

func (r *speculating) compare(p *replicated, worker int, keys map[kv.Key]bool, truth map[kv.Key]kv.TierMask) {
	slot := p.members[worker].Cache().Slot
	for k := range keys { // order-free: counts
		known := p.index.Tiers(slot, 0, k)
		if p.index.Promises(slot, k) {
			known |= kv.HBM.Mask()
		}
		held := truth[k]
		for _, t := range [...]kv.Tier{kv.HBM, kv.CPU} {
			r.result.Held += flag(held&t.Mask() != 0)
			r.result.Known += flag(known&t.Mask() != 0)
			r.result.Right += flag(held&known&t.Mask() != 0)
		}
	}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
