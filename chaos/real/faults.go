//go:build linux

package real

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// step is one thing that is done at a time.
type step struct {
	at    time.Duration
	fault int
	begin bool // of the fault; its other steps are told apart by ends
	ends  bool
	do    func() error
}

// director plays a scenario's faults.
type director struct {
	c *cluster
	s *chaos.Scenario
	v *watch

	flapped map[*chaos.Fault]bool // links that are cut now

	mu        sync.Mutex // guards all below, and the network's rules
	weather   weather
	happening []chaos.Happening
	late      time.Duration // until a cut was made, or was over, at most
}

// errCantPlay says that the ground has no such fault.
var errCantPlay = errors.New("the real ground can't play this")

// plan says what is done when, in order.
func (d *director) plan() (steps []step, err error) {
	for i := range d.s.Faults {
		f := &d.s.Faults[i]
		begin, end, err := d.fault(f)
		if err != nil {
			return nil, fmt.Errorf("fault %d of scenario %s, %s: %w", i, d.s.Name, f.Kind, err)
		}
		steps = append(steps, step{at: f.At, fault: i, begin: true, do: begin})
		every, between := d.between(f)
		for k, more := range between {
			steps = append(steps, step{at: f.At + time.Duration(k+1)*every, fault: i, do: more})
		}
		if f.For > 0 {
			steps = append(steps, step{at: f.End(), fault: i, ends: true, do: end})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps, nil
}

// between are the steps within a fault, one after another, and the time between
// them.
func (d *director) between(f *chaos.Fault) (every time.Duration, steps []func() error) {
	switch f.Kind {
	case chaos.Flap:
		every = f.Period / 2
		for k := time.Duration(1); k*every < f.For; k++ {
			on := k%2 == 0
			steps = append(steps, func() error { return d.flap(f, on) })
		}
	case chaos.ClockJump:
		every = f.Period
		for k := time.Duration(1); every > 0 && k*every < f.For; k++ {
			steps = append(steps, func() error { return together(f.A, says((*replica).clockFile, (k+1)*f.Length, d.c.replicas)) })
		}
	case chaos.Upgrade:
		every = f.Period
		for _, n := range f.A[min(1, len(f.A)):] {
			steps = append(steps, func() error { return d.upgrade(n) })
		}
	case chaos.Expired:
		every = max(0, f.For-papersRead)
		steps = []func() error{func() error {
			return together(f.A, func(n int) error { return d.c.papers.write(d.c.replicas[n : n+1]) })
		}}
	case chaos.Expiry:
		every = f.For / 2
		steps = []func() error{d.changePapers}
	}
	return every, steps
}

// fault returns what begins and what ends one.
func (d *director) fault(f *chaos.Fault) (begin, end func() error, err error) {
	each := func(do func(n int) error) func() error {
		return func() error { return together(f.A, do) }
	}
	rs, ws := d.c.replicas, d.c.workers
	air := func(change func(w *weather, on bool)) (func() error, func() error, error) {
		return func() error { d.change(change, true); return nil }, func() error { d.change(change, false); return nil }, nil
	}
	switch f.Kind {
	case chaos.Crash:
		who := f.A
		return func() error {
				if f.Leader {
					who = []int{d.v.leading(f.A[0])}
				}
				return together(who, func(n int) error { return d.c.end(rs[n], true) })
			}, func() error {
				if err := d.c.tellNames(who); err != nil {
					return err
				}
				return together(who, func(n int) error { return d.c.begin(rs[n]) })
			}, nil
	case chaos.Pause:
		return each(func(n int) error { return d.c.pause(rs[n], true) }), each(func(n int) error { return d.c.pause(rs[n], false) }), nil
	case chaos.Flap:
		return func() error { return d.flap(f, true) }, func() error { return d.flap(f, false) }, nil
	case chaos.Cut:
		return func() error { return d.cut(f, true, true) }, func() error { return d.cut(f, true, false) }, nil
	case chaos.OneWay:
		return func() error { return d.cut(f, false, true) }, func() error { return d.cut(f, false, false) }, nil
	case chaos.Loss:
		return air(func(w *weather, on bool) { w.loss = share(on, f.Amount) })
	case chaos.Delay:
		return air(func(w *weather, on bool) { w.delay = length(on, f.Length) })
	case chaos.Duplicate:
		return air(func(w *weather, on bool) { w.duplicate = share(on, f.Amount) })
	case chaos.Reorder:
		return air(func(w *weather, on bool) { w.reorder, w.lateness = share(on, f.Amount), length(on, f.Length) })
	case chaos.LowMTU:
		return air(func(w *weather, on bool) { w.mtu = int(share(on, f.Amount)) })
	case chaos.Narrow:
		return each(func(n int) error { return d.c.net.narrow(n, f.Amount) }), each(func(n int) error { return d.c.net.narrow(n, 0) }), nil
	case chaos.ClockJump:
		return each(says((*replica).clockFile, f.Length, rs)), each(forgets((*replica).clockFile, rs)), nil
	case chaos.DiskSlow:
		return each(says((*replica).slowFile, f.Length, rs)), each(forgets((*replica).slowFile, rs)), nil
	case chaos.DiskFull:
		return each(func(n int) error { return rs[n].fill(true) }), each(func(n int) error { return rs[n].fill(false) }), nil
	case chaos.Worker, chaos.Moved:
		return each(func(n int) error { return d.c.kill(ws[n]) }), each(func(n int) error {
			if f.Kind == chaos.Moved {
				ws[n].kind++
			}
			return d.c.start(ws[n])
		}), nil
	case chaos.Slow:
		return each(d.c.tell("slow?factor=" + strconv.FormatFloat(f.Amount, 'g', -1, 64))), each(d.c.tell("slow?factor=1")), nil
	case chaos.EventGap:
		return each(d.c.tell("mute?on=true")), each(d.c.tell("mute?on=false")), nil
	case chaos.EventLoss:
		nothing := func() error { return nil } // the engines do it all the time
		return nothing, nothing, nil
	case chaos.Names:
		return func() error { return d.c.net.name(nil) }, func() error { return d.c.tellNames(nil) }, nil
	case chaos.Expiry:
		return d.addPapers, d.takeBackPapers, nil
	case chaos.Expired:
		return each(func(n int) error { return d.c.papers.writeUntil(rs[n:n+1], expireIn) }), func() error { return nil }, nil
	case chaos.Upgrade:
		return func() error { return d.upgrade(f.A[0]) }, func() error { return nil }, nil
	}
	return nil, nil, errCantPlay
}

// papersRead is how long a replica may take to read its new certificate, which is
// there so much before the end of the fault.
const papersRead = 5 * time.Second

// expireIn is how long a certificate is good that is about to run out: replicas
// take no other.
const expireIn = 5 * time.Second

// says writes a length of time into a file that a replica of a lab build reads.
func says(file func(*replica) string, length time.Duration, rs []*replica) func(n int) error {
	return func(n int) error { return os.WriteFile(file(rs[n]), []byte(length.String()), 0o600) }
}

func forgets(file func(*replica) string, rs []*replica) func(n int) error {
	return func(n int) error { return os.Remove(file(rs[n])) }
}

func share(on bool, amount float64) float64 {
	if on {
		return amount
	}
	return 0
}

func length(on bool, d time.Duration) time.Duration {
	if on {
		return d
	}
	return 0
}

// together does the same to several, at once.
func together(all []int, do func(n int) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, n := range all {
		wg.Go(func() { errs[i] = do(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// cut drops packets between the sides of a fault, or lets them through again.
func (d *director) cut(f *chaos.Fault, bothWays, on bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ways []way
	for _, a := range f.A {
		for b := range d.s.Replicas {
			if f.B != nil && !slices.Contains(f.B, b) || f.B == nil && slices.Contains(f.A, b) {
				continue
			}
			ways = append(ways, way{a, b})
			if bothWays {
				ways = append(ways, way{b, a})
			}
		}
	}
	began := d.c.now()
	err := d.c.net.cut(ways, on)
	d.late = max(d.late, d.c.now()-began)
	return err
}

// flap cuts a link that comes and goes, unless it is so already.
func (d *director) flap(f *chaos.Fault, on bool) error {
	if d.flapped[f] == on {
		return nil
	}
	d.flapped[f] = on
	return d.cut(f, true, on)
}

func (d *director) change(how func(w *weather, on bool), on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	how(&d.weather, on)
	now := d.weather
	d.c.tunnels.weather.Store(&now)
}

// upgrade has a replica end in order and begin anew with the next version of the
// wire.
func (d *director) upgrade(n int) error {
	r := d.c.replicas[n]
	if err := d.c.end(r, false); err != nil {
		return err
	}
	r.mu.Lock()
	r.next = true
	r.mu.Unlock()
	if err := d.c.tellNames([]int{n}); err != nil {
		return err
	}
	return d.c.begin(r)
}

// The papers are replaced as their owners are told to do it: the new authority is
// believed everywhere, then it signs, then the old one is believed no more.
func (d *director) addPapers() error {
	if err := d.c.papers.believe(); err != nil {
		return err
	}
	return d.c.papers.write(d.c.replicas)
}

func (d *director) changePapers() error {
	d.c.papers.change()
	return d.c.papers.write(d.c.replicas)
}

func (d *director) takeBackPapers() error {
	d.c.papers.forget()
	return d.c.papers.write(d.c.replicas)
}

// run does all steps at their times.
func (d *director) run(ctx context.Context, steps []step) error {
	for _, st := range steps {
		if err := d.c.clock.Sleep(ctx, st.at-d.c.now()); err != nil {
			return err
		}
		if st.begin || st.ends {
			d.mu.Lock()
			d.happening = append(d.happening, chaos.Happening{At: d.c.now(), Fault: st.fault, Ends: st.ends})
			d.mu.Unlock()
		}
		if err := st.do(); err != nil {
			return fmt.Errorf("%s at %v: %w", d.s.Faults[st.fault].Kind, st.at, err)
		}
	}
	return nil
}
