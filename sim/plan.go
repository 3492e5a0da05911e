package sim

import (
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/workload"
)

// plan makes the work of a scenario for one seed. trace is what scenarios of a
// trace play; nil: the shipped excerpt.
func (s *Scenario) plan(seed uint64, trace []workload.Request) (*workload.Plan, error) {
	wl := &s.Workload
	length := time.Duration(wl.Seconds * float64(time.Second))
	var p workload.Plan
	switch wl.Kind {
	case Trace:
		return s.tracePlan(seed, trace)
	case Agents:
		a := workload.AgentsSmall(seed, wl.Sessions)
		p = a.Plan()
	case Coding:
		a := workload.DefaultAgents(seed, wl.Sessions)
		a.Sessions = 2 * wl.Sessions
		p = a.Plan()
	case Chat:
		p = workload.SyntheticChat(seed, s.Fleet.Workers, length)
	case ChatFleet:
		p = workload.ChatFleet(seed, s.Fleet.Workers, length)
	case Bursts:
		p = workload.Bursts(workload.SyntheticChat(seed, s.Fleet.Workers, length), workload.DefaultBursts(seed))
	case Diurnal:
		p = workload.Diurnal(workload.SyntheticChat(seed, s.Fleet.Workers, length), length/2, 0.4)
	default:
		return nil, fmt.Errorf("scenario %s: work of kind %q is unknown", s.Name, wl.Kind)
	}
	if wl.Limit > 0 { // waits stand before those that wait, so any head of a plan is one
		p.Jobs = p.Jobs[:min(wl.Limit, len(p.Jobs))]
	}
	if wl.Speed != 1 {
		for i := range p.Jobs {
			p.Jobs[i].At = time.Duration(float64(p.Jobs[i].At) / wl.Speed)
			p.Jobs[i].After = time.Duration(float64(p.Jobs[i].After) / wl.Speed)
		}
	}
	return &p, nil
}

func (s *Scenario) tracePlan(seed uint64, trace []workload.Request) (*workload.Plan, error) {
	wl := &s.Workload
	if trace == nil {
		var err error
		if trace, err = workload.Excerpt(0); err != nil {
			return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
		}
	}
	if wl.Half != "" {
		trace = workload.Half(trace, workload.Set(wl.Half))
	}
	p := workload.TracePlan(trace, workload.TraceOptions{Name: s.Name, Seed: seed, Speed: wl.Speed, Hold: wl.Hold, Limit: wl.Limit})
	if !wl.Hidden {
		for i := range p.Jobs {
			p.Jobs[i].Hidden = false
		}
	}
	return &p, nil
}

// Validate tells what is wrong with a scenario.
func (s *Scenario) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("scenario %s: %s", s.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Fleet.Workers < 1 || s.Fleet.Workers > 10_000:
		return bad("%d workers; give 1 to 10000", s.Fleet.Workers)
	case s.Replicas < 1 || s.Replicas > 256:
		return bad("%d replicas; give 1 to 256", s.Replicas)
	case s.Workload.Speed <= 0:
		return bad("speed %g; give more than 0", s.Workload.Speed)
	case s.BlockTokens < 1 || s.BlockTokens > 4096:
		return bad("blocks of %d tokens; give 1 to 4096", s.BlockTokens)
	case (s.Workload.Kind == Agents || s.Workload.Kind == Coding) && (s.Workload.Sessions < 1 || s.Workload.Sessions > 100_000):
		return bad("%d sessions; give 1 to 100000", s.Workload.Sessions)
	case s.Workload.Announce && s.Workload.Kind != Agents && s.Workload.Kind != Coding:
		return bad("agents announce their workflows, but the work is %q", s.Workload.Kind)
	case s.Fleet.BudgetTokens != 0 && s.Fleet.BudgetTokens < model.DefaultMaxSeqs:
		return bad("iterations of %d tokens; give at least %d, or 0 for the default", s.Fleet.BudgetTokens, model.DefaultMaxSeqs)
	case s.Network.Scrape <= 0:
		return bad("a scrape period of %v; give more than 0", s.Network.Scrape)
	}
	return nil
}
