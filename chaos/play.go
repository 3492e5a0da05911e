package chaos

import (
	"cmp"
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
	// Parallel bounds the runs at once; 0: one for each processor, and on the real
	// ground two, since its processes need time of their own.
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
	// Stalls are the runs that failed while the machine had no time for them. The
	// last run counts, however it was.
	Stalls int `json:"stalls,omitempty"`
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
	for _, place := range places {
		var of []int
		for i := range all {
			if all[i].g.Place() == place {
				of = append(of, i)
			}
		}
		atOnce := cmp.Or(o.Parallel, runtime.GOMAXPROCS(0))
		if place == Real {
			atOnce = min(atOnce, realAtOnce)
		}
		each(ctx, of, atOnce, do)
	}
	return results, ctx.Err()
}

// realAtOnce bounds the runs at once on the real ground: each has ten processes
// or so, and takes half of a processor.
const realAtOnce = 2

// each does some of the work at once, all of it unless ctx ends.
func each(ctx context.Context, work []int, atOnce int, do func(int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for _, i := range work {
		if ctx.Err() == nil {
			next <- i
		}
	}
	close(next)
	wg.Wait()
}

// A replica that is given no processor looks like one that died. So a run in which
// something was wrong and the machine had no time for longer than mayStall, which
// is what the shortest bounds have to spare, is played again, stallTries in all.
const (
	mayStall   = 500 * time.Millisecond
	stallTries = 3
)

// play makes one run.
func (j *job) play(ctx context.Context) Result {
	r := Result{Scenario: j.s.Name, Place: j.g.Place(), Seed: j.seed}
	began := time.Now()
	defer func() { r.Seconds = time.Since(began).Seconds() }()
	if err := j.g.Ready(); err != nil {
		r.Err = err.Error()
		return r
	}
	var h *History
	for range stallTries {
		var err error
		if h, err = j.g.Run(ctx, j.s, j.seed); err != nil {
			r.Err = err.Error()
			return r
		}
		if r.Violations = Judge(j.s, h); len(r.Violations) == 0 || h.Stalled <= mayStall {
			break
		}
		r.Stalls++
	}
	r.Requests, r.Regret = len(h.Requests), Regret(j.s, h)
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
