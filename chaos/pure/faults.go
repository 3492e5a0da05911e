package pure

import (
	"fmt"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/sim"
)

// plan schedules what goes wrong; without replicas only what workers suffer.
func (r *run) plan(replicas bool) error {
	r.active = make([]bool, len(r.s.Faults))
	for i := range r.s.Faults {
		f := &r.s.Faults[i]
		ofWorkers := f.Kind == chaos.Slow || f.Kind == chaos.Worker || f.Kind == chaos.Moved
		if !replicas && !ofWorkers {
			continue
		}
		set, err := r.setter(f)
		if err != nil {
			return err
		}
		turn := func(on bool) func() {
			return func() {
				r.active[i] = on
				r.h.Faults = append(r.h.Faults, chaos.Happening{At: r.Now(), Fault: i, Ends: !on})
				set(on)
			}
		}
		r.At(f.At, turn(true))
		if f.For > 0 {
			r.At(f.End(), turn(false))
		}
	}
	return nil
}

// setter returns what begins and ends a fault.
func (r *run) setter(f *chaos.Fault) (func(on bool), error) {
	each := func(begin, end func(n int)) func(on bool) {
		return func(on bool) {
			for _, n := range f.A {
				if on {
					begin(n)
				} else {
					end(n)
				}
			}
		}
	}
	fail := func(err error) {
		if err != nil && r.err == nil {
			r.err = err
		}
	}
	switch f.Kind {
	case chaos.Crash:
		if f.Leader {
			return r.crashLeader(f.A[0], fail), nil
		}
		return each(r.crash, func(n int) { fail(r.start(n)) }), nil
	case chaos.Pause:
		return each(func(n int) { r.Pause(n); r.stops(n) }, func(n int) { r.Resume(n); r.goesOn(n) }), nil
	case chaos.Worker, chaos.Moved:
		return each(func(n int) { r.Power(n, false) }, func(n int) { r.Power(n, true) }), nil
	case chaos.Slow:
		return each(func(n int) { fail(r.Slow(n, f.Amount)) }, func(n int) { fail(r.Slow(n, 1)) }), nil
	case chaos.EventGap:
		return each(func(n int) { r.Mute(n, true) }, func(n int) { r.Mute(n, false) }), nil
	case chaos.EventLoss:
		return func(on bool) { r.LoseEvents(pick(on, f.Amount)) }, nil
	case chaos.Cut, chaos.OneWay, chaos.Loss, chaos.Delay, chaos.Duplicate, chaos.Reorder:
		return func(bool) { r.network() }, nil
	case chaos.Flap:
		return r.flap, nil
	}
	return nil, fmt.Errorf("chaos, scenario %s: there is no %s on the pure ground; take the scenario off it", r.s.Name, f.Kind)
}

// crash ends a replica's life, start begins the next one.
func (r *run) crash(n int) {
	last := r.Replica(n)
	r.hear(&last)
	r.Crash(n)
	r.stops(n)
}

func (r *run) start(n int) error {
	r.goesOn(n)
	return r.Start(n)
}

// crashLeader returns what has a crash meet who leads, or another where nobody
// does.
func (r *run) crashLeader(n int, fail func(error)) func(on bool) {
	return func(on bool) {
		if !on {
			fail(r.start(n))
			return
		}
		if leader, leads := r.Leader(); leads {
			n = leader
		}
		r.crash(n)
	}
}

// stops notes that a replica answers no more, goesOn that it does again.
func (r *run) stops(n int) {
	for i := range r.h.Replicas {
		if l := &r.h.Replicas[i]; l.Replica == n && l.Until == 0 {
			l.Until = r.Now()
		}
	}
}

func (r *run) goesOn(n int) {
	if !slices.ContainsFunc(r.h.Replicas, func(l chaos.ReplicaLife) bool { return l.Replica == n && l.Until == 0 }) {
		r.h.Replicas = append(r.h.Replicas, chaos.ReplicaLife{Replica: n, From: r.Now()})
	}
}

func pick(on bool, share float64) float64 {
	if on {
		return share
	}
	return 0
}

// flap follows the links that come and go for as long as any does.
func (r *run) flap(on bool) {
	r.network()
	if !on {
		return
	}
	step := time.Hour
	for i := range r.s.Faults {
		if f := &r.s.Faults[i]; f.Kind == chaos.Flap {
			step = min(step, f.Period/2)
		}
	}
	var again func()
	again = func() {
		r.network()
		if slices.ContainsFunc(r.flaps(), func(i int) bool { return r.active[i] }) {
			r.At(r.Now()+step, again)
		}
	}
	r.At(r.Now()+step, again)
}

func (r *run) flaps() (all []int) {
	for i := range r.s.Faults {
		if r.s.Faults[i].Kind == chaos.Flap {
			all = append(all, i)
		}
	}
	return all
}

// network makes every way between two replicas what the present faults make of
// it. Packets that come twice are taken once by QUIC, so they change nothing
// here.
func (r *run) network() {
	for from := range r.s.Replicas {
		for to := range r.s.Replicas {
			if from == to {
				continue
			}
			var way sim.Way
			for i := range r.s.Faults {
				if r.active[i] {
					r.spoil(&way, &r.s.Faults[i], from, to)
				}
			}
			r.SetWay(from, to, way)
		}
	}
}

func (r *run) spoil(way *sim.Way, f *chaos.Fault, from, to int) {
	between := within(f.A, from) && beyond(f, to) || within(f.A, to) && beyond(f, from)
	switch f.Kind {
	case chaos.Cut:
		way.Cut = way.Cut || between
	case chaos.OneWay:
		way.Cut = way.Cut || within(f.A, from) && beyond(f, to)
	case chaos.Flap:
		half := int((r.Now() - f.At) / (f.Period / 2))
		way.Cut = way.Cut || between && half%2 == 0
	case chaos.Loss:
		way.Loss = min(0.9, way.Loss+f.Amount)
	case chaos.Delay:
		way.Delay += f.Length
	case chaos.Reorder:
		way.Late, way.Lateness = f.Amount, f.Length
	}
}

func within(list []int, n int) bool { return slices.Contains(list, n) }

// beyond reports whether a replica is on the other side of a fault.
func beyond(f *chaos.Fault, n int) bool {
	if f.B == nil {
		return !within(f.A, n)
	}
	return within(f.B, n)
}
