package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/workload"
)

// Options say how a scenario is played.
type Options struct {
	Policies []Policy
	Column   Column
	Seeds    []uint64
	// Trace is what scenarios of a trace play; nil: the shipped excerpt.
	Trace []workload.Request
	// Parallel bounds the runs at once; 0: one for each processor.
	Parallel int
	// Progress is called after each run; may be nil. Calls don't overlap.
	Progress func(label string)
}

// run is one seed's run of one policy.
type run struct {
	row     Row
	picture *Picture
	micros  float64 // mean real time of a decision
	goals   Goals
}

// Play plays a scenario by all policies over all seeds. Equal arguments give
// equal tables, but for what is measured in real time.
func Play(ctx context.Context, sc Scenario, o Options) (*Table, error) {
	plans, err := plansOf(ctx, &sc, o)
	if err != nil {
		return nil, err
	}
	bounds := make([]Bound, len(o.Seeds))
	var work []func() error
	for s, seed := range o.Seeds {
		work = append(work, func() (err error) {
			bounds[s], err = bound(&sc, sc.seed(seed), plans[s])
			return err
		})
	}
	if err := parallel(ctx, o.Parallel, work); err != nil {
		return nil, err
	}
	runs, err := playAll(ctx, &sc, o, plans)
	if err != nil {
		return nil, err
	}
	return tabulate(sc, o, runs, bounds), nil
}

// seed is what a scenario draws by for one of the seeds asked for. Set B's
// workers, sessions and arrivals are others than set A's.
func (s *Scenario) seed(n uint64) uint64 {
	if s.Set == "B" {
		return n + 1<<32
	}
	return n
}

// plansOf makes the work of each seed.
func plansOf(ctx context.Context, sc *Scenario, o Options) ([]*workload.Plan, error) {
	plans := make([]*workload.Plan, len(o.Seeds))
	var work []func() error
	for s, seed := range o.Seeds {
		work = append(work, func() (err error) {
			plans[s], err = sc.plan(sc.seed(seed), o.Trace)
			return err
		})
	}
	return plans, parallel(ctx, o.Parallel, work)
}

// playAll returns the runs by policy and seed.
func playAll(ctx context.Context, sc *Scenario, o Options, plans []*workload.Plan) ([][]run, error) {
	runs := make([][]run, len(o.Policies))
	var work []func() error
	var mu sync.Mutex
	for p := range o.Policies {
		runs[p] = make([]run, len(o.Seeds))
		for s, seed := range o.Seeds {
			work = append(work, func() error {
				r, err := runOnce(sc, o.Column, sc.seed(seed), plans[s], &o.Policies[p], s == 0)
				if err != nil {
					return fmt.Errorf("%s, policy %s, seed %d: %w", sc.Name, o.Policies[p].Name, seed, err)
				}
				runs[p][s] = *r
				if o.Progress != nil {
					mu.Lock()
					defer mu.Unlock()
					o.Progress(sc.Name + " " + o.Policies[p].Name)
				}
				return nil
			})
		}
	}
	return runs, parallel(ctx, o.Parallel, work)
}

// parallel does all of work, a few at a time, and returns the errors joined.
// After the first one it begins nothing more.
func parallel(ctx context.Context, n int, work []func() error) error {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	next := 0
	take := func() func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(errs) > 0 || next == len(work) || ctx.Err() != nil {
			return nil
		}
		next++
		return work[next-1]
	}
	for range min(n, len(work)) {
		wg.Go(func() {
			for f := take(); f != nil; f = take() {
				if err := f(); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// runOnce plays one plan by one policy.
func runOnce(sc *Scenario, column Column, seed uint64, plan *workload.Plan, p *Policy, draws bool) (*run, error) {
	w, err := newWorld(sc, column, seed, plan, p, draws)
	if err != nil {
		return nil, err
	}
	if err := w.play(); err != nil {
		return nil, err
	}
	r := &run{row: w.record.row(sc.Goals)}
	if w.record.decisions > 0 {
		r.micros = w.record.decisionNanos / 1e3 / float64(w.record.decisions)
	}
	if draws {
		r.picture = w.record.picture()
	}
	return r, nil
}

// bound is what no placement can pass: each request alone on the fastest worker,
// with all that an infinite shared cache would hold.
func bound(sc *Scenario, seed uint64, plan *workload.Plan) (Bound, error) {
	n, err := newNature(sc, seed)
	if err != nil {
		return Bound{}, err
	}
	cached := workload.InfiniteCache(plan, sc.BlockTokens)
	var b Bound
	var prompt, hit float64
	for i := range plan.Jobs {
		tokens := plan.Jobs[i].PromptTokens()
		b.TTFTMean += n.aloneMicros(tokens, cached[i]) / 1e6 / float64(len(plan.Jobs))
		prompt, hit = prompt+float64(tokens), hit+float64(cached[i])
	}
	b.Cached = share(hit, prompt)
	return b, nil
}

// aloneMicros is the TTFT of a request alone on the seed's fastest worker.
func (n *nature) aloneMicros(prompt, cached int) float64 {
	full := model.Load{PrefillTokens: n.budgetTokens}
	best := n.timing(0)
	for i := range n.linear {
		if t := n.timing(i); t.Iteration(full) < best.Iteration(full) {
			best = t
		}
	}
	micros := n.overheadMicros + n.tokeniseMicros*float64(prompt) + n.responseMicros
	for at := min(cached, prompt-1); at < prompt; at += n.budgetTokens {
		chunk := min(n.budgetTokens, prompt-at)
		micros += best.Iteration(model.Load{PrefillTokens: chunk, PrefillPairs: float64(chunk) * (float64(at) + float64(chunk)/2)})
	}
	return micros
}
