package bubble

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/transport"
)

// world is one play of a scenario, all of it in one bubble. Only the goroutine
// that plays changes it.
type world struct {
	t       *testing.T
	s       *chaos.Scenario
	seed    uint64
	began   time.Time
	net     *transport.Network
	places  []*place
	engines []*engine
	cut     map[[2]int]int // reasons to drop what one replica sends another
	flapped map[int]bool   // faults whose link is cut now
	weather transport.Faults
	ending  sync.WaitGroup // replicas that end
	hosts   atomic.Pointer[[]netip.Addr]
	running atomic.Pointer[[]*replica]
	h       *chaos.History
}

const (
	sampleEvery = 500 * time.Millisecond
	// baseDelay is what a packet takes on a good day.
	baseDelay = time.Millisecond
	// settleFirst is how long replicas have to meet before the play begins, and
	// outlive how long memberlist's probes may outlive it.
	settleFirst = 30 * time.Second
	outlive     = 10 * time.Second
	// silentFor is how long before the end engines fall silent, so that replicas
	// can be held against them.
	silentFor = 2 * time.Second
)

// Play plays a scenario and returns what happened. It fails the test where the
// scenario can't be played.
func Play(t *testing.T, s *chaos.Scenario, seed uint64) *chaos.History {
	t.Helper()
	h := &chaos.History{Scenario: s.Name, Place: chaos.Bubble, Seed: seed}
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, s: s, seed: seed, net: transport.NewNetwork(seed), cut: make(map[[2]int]int), flapped: make(map[int]bool),
			weather: transport.Faults{Delay: baseDelay}, h: h}
		defer w.net.Close()
		w.net.Faulty(w.weather)
		for i := range s.Workers {
			w.engines = append(w.engines, newEngine(i))
		}
		for i := range s.Replicas {
			w.places = append(w.places, &place{n: i})
		}
		for _, p := range w.places {
			w.start(p)
		}
		w.meet()
		w.play()
		w.close()
	})
	return h
}

// meet waits until all replicas know one another.
func (w *world) meet() {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		all := true
		for _, p := range w.places {
			x := w.sample(p)
			all = all && len(x.Joined) == len(w.places)-1 && x.Applied > 0
		}
		switch {
		case all:
			return
		case time.Since(began) > settleFirst:
			w.t.Fatalf("%d replicas did not meet within %v", len(w.places), settleFirst)
		}
	}
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// play does what is due, one thing after another, to the end.
func (w *world) play() {
	steps := w.plan()
	w.began = time.Now()
	asking := w.ask()
	end := max(w.s.Duration, w.s.Last()) + w.s.Settle
	steps = append(steps, step{at: end - silentFor, do: func() {
		for _, e := range w.engines {
			e.fallSilent()
		}
	}})
	for next := time.Duration(0); w.now() < end; {
		due := next
		if len(steps) > 0 {
			due = min(due, steps[0].at)
		}
		time.Sleep(due - w.now())
		for len(steps) > 0 && steps[0].at <= w.now() {
			st := steps[0]
			if st.begin || st.ends {
				w.h.Faults = append(w.h.Faults, chaos.Happening{At: w.now(), Fault: st.fault, Ends: st.ends})
			}
			st.do()
			steps = steps[1:]
		}
		if w.now() >= next {
			for _, p := range w.places {
				w.h.Samples = append(w.h.Samples, w.sample(p))
				w.save(p)
			}
			w.lead()
			next = max(next, w.now()) + sampleEvery
		}
	}
	for _, e := range w.engines {
		if truth, up := e.truth(); up {
			w.h.Truths = append(w.h.Truths, truth)
		}
	}
	w.h.End = w.now()
	asking.end()
}

// lead writes the numbers of leaders into the last round of samples.
func (w *world) lead() {
	round := w.h.Samples[len(w.h.Samples)-len(w.places):]
	for i := range round {
		leader := ""
		if p := w.places[i]; p.up != nil {
			leader = p.up.leases.Status().Leader
		}
		round[i].Leader = slices.IndexFunc(round, func(x chaos.Sample) bool { return x.Live && x.Name == leader })
	}
}

func (w *world) close() {
	for _, p := range w.places {
		if p.up != nil {
			w.stop(p, false)
		}
	}
	w.ending.Wait()
	time.Sleep(outlive)
}

// step is one thing that is done at a time.
type step struct {
	at          time.Duration
	fault       int
	begin, ends bool // of the fault
	do          func()
}

// plan says what is done when, in order.
func (w *world) plan() (steps []step) {
	for i := range w.s.Faults {
		f := &w.s.Faults[i]
		begin, end := w.fault(i, f)
		steps = append(steps, step{at: f.At, fault: i, begin: true, do: begin})
		if f.Kind == chaos.Flap {
			for k := time.Duration(1); k*f.Period/2 < f.For; k++ {
				on := k%2 == 0
				steps = append(steps, step{at: f.At + k*f.Period/2, fault: i, do: func() { w.flap(i, f, on) }})
			}
		}
		if f.For > 0 {
			steps = append(steps, step{at: f.End(), fault: i, ends: true, do: end})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

// fault returns what begins and what ends one.
func (w *world) fault(i int, f *chaos.Fault) (begin, end func()) {
	places := func(do func(p *place)) func() {
		return func() {
			for _, n := range f.A {
				do(w.places[n])
			}
		}
	}
	engines := func(do func(e *engine)) func() {
		return func() {
			for _, n := range f.A {
				do(w.engines[n])
			}
		}
	}
	air := func(to func(x *transport.Faults)) func() {
		return func() { to(&w.weather); w.tellNetwork() }
	}
	switch f.Kind {
	case chaos.Crash:
		if f.Leader {
			p := w.places[f.A[0]]
			return func() { p = w.leading(p); w.stop(p, true) }, func() { w.start(p) }
		}
		return places(func(p *place) { w.stop(p, true) }), places(w.start)
	case chaos.Cut:
		return func() { w.cutBetween(f, true, 1) }, func() { w.cutBetween(f, true, -1) }
	case chaos.OneWay:
		return func() { w.cutBetween(f, false, 1) }, func() { w.cutBetween(f, false, -1) }
	case chaos.Flap:
		return func() { w.flap(i, f, true) }, func() { w.flap(i, f, false) }
	case chaos.Loss:
		return air(func(x *transport.Faults) { x.Loss = f.Amount }), air(func(x *transport.Faults) { x.Loss = 0 })
	case chaos.Duplicate:
		return air(func(x *transport.Faults) { x.Duplicate = f.Amount }), air(func(x *transport.Faults) { x.Duplicate = 0 })
	case chaos.Reorder:
		return air(func(x *transport.Faults) { x.Reorder = f.Amount }), air(func(x *transport.Faults) { x.Reorder = 0 })
	case chaos.Delay:
		return air(func(x *transport.Faults) { x.Delay, x.Jitter = baseDelay+f.Length/2, f.Length }), air(func(x *transport.Faults) { x.Delay, x.Jitter = baseDelay, 0 })
	case chaos.Worker, chaos.Moved:
		return engines((*engine).die), engines((*engine).begin)
	case chaos.EventGap:
		return engines(func(e *engine) { e.hush(true) }), engines(func(e *engine) { e.hush(false) })
	}
	w.t.Fatalf("fault %d of scenario %s, %s, can't be played in a bubble", i, w.s.Name, f.Kind)
	return nil, nil
}

// leading is the place of who leads the agreement on leases, or another.
func (w *world) leading(otherwise *place) *place {
	for _, p := range w.places {
		if p.up != nil && p.up.leases.Status().Leads {
			return p
		}
	}
	return otherwise
}

func (w *world) flap(i int, f *chaos.Fault, on bool) {
	if w.flapped[i] == on {
		return
	}
	w.flapped[i] = on
	if on {
		w.cutBetween(f, true, 1)
	} else {
		w.cutBetween(f, true, -1)
	}
}

// cutBetween adds a reason to drop packets between the sides of a fault, or
// takes it away.
func (w *world) cutBetween(f *chaos.Fault, bothWays bool, more int) {
	for _, a := range f.A {
		for b := range w.places {
			if f.B != nil && !slices.Contains(f.B, b) || f.B == nil && slices.Contains(f.A, b) {
				continue
			}
			w.cut[[2]int{a, b}] += more
			if bothWays {
				w.cut[[2]int{b, a}] += more
			}
		}
	}
	w.tellNetwork()
}

// tellNetwork has the network do to packets what is to be done now, and the
// resolver know where replicas are.
func (w *world) tellNetwork() {
	var hosts []netip.Addr
	for _, p := range w.places {
		hosts = append(hosts, p.address().Addr())
	}
	w.hosts.Store(&hosts)
	for a, from := range w.places {
		for b, to := range w.places {
			if a != b {
				faults := w.weather
				faults.Cut = w.cut[[2]int{a, b}] > 0
				w.net.FaultyFrom(from.address(), to.address(), faults)
			}
		}
	}
}

// lookup is the resolver of all replicas: their common name leads to where each
// place is or was last.
func (w *world) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	if host != replicasName {
		return nil, fmt.Errorf("there is no host %s", host)
	}
	return *w.hosts.Load(), nil
}
