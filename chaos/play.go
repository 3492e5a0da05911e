package chaos

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Options say how scenarios are played.
type Options struct {
	Seeds int // runs of each scenario on the pure ground, from seed 1; 0 means 1
	// Parallel bounds the runs at once on the pure ground; 0: one for each
	// processor. Other grounds play one at a time.
	Parallel int
	// Progress is told of each run that is over; may be nil. Calls don't overlap.
	Progress func(label string)
}

// Result is how one run went.
type Result struct {
	Scenario string `json:"scenario"`
	Place    Place  `json:"ground"`
	Seed     uint64 `json:"seed"`
	// Err says why it was not played to its end; it has not passed then.
	Err        string      `json:"error,omitempty"`
	Violations []Violation `json:"violations,omitempty"`
	Requests   int         `json:"requests"`
	Failed     int         `json:"failed"` // requests, of which most met a fault
	Regret     float64     `json:"regret,omitempty"`
	// Seconds is how long the run took in real time.
	Seconds float64  `json:"-"`
	History *History `json:"-"` // of a scenario's first seed on each ground
}

// Passed reports whether a run was played and nothing was wrong.
func (r *Result) Passed() bool { return r.Err == "" && len(r.Violations) == 0 }

// BubbleRuns is how often each scenario is played in a bubble, where runs of one
// seed differ.
const BubbleRuns = 5

// Runs is how many runs [Play] makes, for progress.
func Runs(scenarios []Scenario, grounds []Ground, o Options) int {
	return len(jobs(scenarios, grounds, o))
}

// job is one run to be made.
type job struct {
	s    *Scenario
	g    Ground
	seed uint64
}

func jobs(scenarios []Scenario, grounds []Ground, o Options) []job {
	var all []job
	for i := range scenarios {
		for _, g := range grounds {
			seeds := 1
			switch g.Place() {
			case Pure:
				seeds = max(1, o.Seeds)
			case Bubble:
				seeds = BubbleRuns
			}
			for seed := range seeds {
				if scenarios[i].On(g.Place()) {
					all = append(all, job{&scenarios[i], g, uint64(seed) + 1})
				}
			}
		}
	}
	return all
}

// Play plays scenarios on those of the grounds that each is required on, and
// judges them. Results are in order of scenario, ground and seed.
func Play(ctx context.Context, scenarios []Scenario, grounds []Ground, o Options) ([]Result, error) {
	all := jobs(scenarios, grounds, o)
	results := make([]Result, len(all))
	var mu sync.Mutex
	do := func(i int) {
		results[i] = all[i].play(ctx)
		if o.Progress != nil {
			mu.Lock()
			defer mu.Unlock()
			o.Progress(fmt.Sprintf("%s on %s", all[i].s.Name, all[i].g.Place()))
		}
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range cmpOr(o.Parallel, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range all {
		if all[i].g.Place() == Pure && ctx.Err() == nil {
			next <- i
		}
	}
	close(next)
	wg.Wait()
	for i := range all {
		if all[i].g.Place() != Pure && ctx.Err() == nil {
			do(i)
		}
	}
	return results, ctx.Err()
}

func cmpOr(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// play makes one run.
func (j *job) play(ctx context.Context) Result {
	r := Result{Scenario: j.s.Name, Place: j.g.Place(), Seed: j.seed}
	began := time.Now()
	defer func() { r.Seconds = time.Since(began).Seconds() }()
	if err := j.g.Ready(); err != nil {
		r.Err = err.Error()
		return r
	}
	h, err := j.g.Run(ctx, j.s, j.seed)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	r.Violations, r.Requests, r.Regret = Judge(j.s, h), len(h.Requests), Regret(h)
	for i := range h.Requests {
		if h.Requests[i].Outcome != Answered {
			r.Failed++
		}
	}
	if j.seed == 1 {
		r.History = h
	}
	r.Seconds = time.Since(began).Seconds()
	return r
}

// Summary is the last word on all runs.
type Summary struct {
	Scenarios int      `json:"scenarios"`
	Passed    int      `json:"passed"`
	Failed    []string `json:"failed"`
}

// Sum sums results up by scenario: one has passed if all its runs have, on each
// of the grounds asked for that it is required on, and it was played at all.
func Sum(scenarios []Scenario, results []Result) Summary {
	s := Summary{Scenarios: len(scenarios), Failed: []string{}}
	for i := range scenarios {
		name, played, good := scenarios[i].Name, false, true
		for k := range results {
			if results[k].Scenario == name {
				played, good = true, good && results[k].Passed()
			}
		}
		if played && good {
			s.Passed++
		} else {
			s.Failed = append(s.Failed, name)
		}
	}
	return s
}

// Playable returns those of scenarios that are required on at least one ground.
func Playable(scenarios []Scenario, places []Place) []Scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s Scenario) bool {
		return !slices.ContainsFunc(places, s.On)
	})
}
