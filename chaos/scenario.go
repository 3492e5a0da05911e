package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Place names a ground.
type Place string

// The grounds.
const (
	Pure   Place = "pure"
	Bubble Place = "bubble"
	Real   Place = "real"
)

var places = []Place{Pure, Bubble, Real}

// Places returns the names of all grounds, the cheapest first.
func Places() []Place { return slices.Clone(places) }

// Scenario is one experiment as data.
type Scenario struct {
	Name string
	Doc  string // in a line: what happens, and what must hold
	// Grounds are those on which it must pass. Quick says that it belongs to the
	// suite that every change runs.
	Grounds []Place
	Quick   bool

	Replicas, Workers int
	Load              Load
	// Duration is how long work comes in. A ground goes on until all of it has
	// ended, and for Settle after the last fault, so that what is promised of the
	// time after it can be seen.
	Duration, Settle time.Duration
	Faults           []Fault
	Bounds           Bounds
}

// Load is the work: sessions in closed loop, each a few turns over a growing
// prompt, spread over the replicas that are alive.
type Load struct {
	Sessions int
	// Think is the pause between a turn's end and the next.
	Think time.Duration
	// Stay keeps each session on one replica while that one lives; otherwise each
	// request goes to one drawn at random.
	Stay bool
}

// FaultKind names what goes wrong.
type FaultKind string

// The faults. What A, B, Amount, Length and Period of a Fault mean is said
// beside each. Replicas and workers are numbers from 0.
const (
	Crash     FaultKind = "crash"     // replicas A are killed at once; at the end of For each starts anew: another boot, another address, and nothing on disk unless Keep
	Pause     FaultKind = "pause"     // replicas A stand still (SIGSTOP) for For
	Slow      FaultKind = "slow"      // workers A run at 1/Amount of their speed
	Cut       FaultKind = "cut"       // no packet between replicas A and B, either way; B empty: all others
	OneWay    FaultKind = "one-way"   // no packet from A to B; B empty: all others
	Flap      FaultKind = "flap"      // Cut that comes and goes: half of Period cut, half not
	Loss      FaultKind = "loss"      // a share Amount of packets between replicas is lost
	Delay     FaultKind = "delay"     // packets between replicas take Length longer, ± half of it
	Duplicate FaultKind = "duplicate" // a share Amount of packets comes twice
	Reorder   FaultKind = "reorder"   // a share Amount of packets comes Length late
	LowMTU    FaultKind = "low-mtu"   // packets over Amount bytes are lost without a word
	ClockJump FaultKind = "clock"     // the wall clocks of replicas A are off by Length; with a Period by as much more after each
	DiskFull  FaultKind = "disk-full" // the disks of replicas A take nothing more
	DiskSlow  FaultKind = "disk-slow" // each write of replicas A takes Length
	Worker    FaultKind = "worker"    // workers A die and come back empty after For
	Moved     FaultKind = "moved"     // workers A die and come back after For, another engine under the same address
	EventLoss FaultKind = "events"    // a share Amount of the engines' event batches is lost on their way, and replayed when missed
	EventGap  FaultKind = "gap"       // all events of workers A are lost during For, and can't be replayed
	Names     FaultKind = "names"     // what the replicas' name leads to changes
	Expiry    FaultKind = "expiry"    // certificates are replaced, the old ones taken back
	Expired   FaultKind = "expired"   // certificates of replicas A run out, and are renewed by the end
	Narrow    FaultKind = "narrow"    // replicas A send at most Amount bytes a second
	Upgrade   FaultKind = "upgrade"   // replicas A start anew one after another, Period apart, with the next minor version of the wire
)

// faultKinds are all of them.
var faultKinds = []FaultKind{Crash, Pause, Slow, Cut, OneWay, Flap, Loss, Delay, Duplicate, Reorder, LowMTU, ClockJump, DiskFull, DiskSlow, Worker, Moved, EventLoss, EventGap, Names, Expiry, Expired, Narrow, Upgrade}

// Fault is one thing that goes wrong for a while.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// At is when it begins, For how long it lasts; 0: for good.
	At     time.Duration `json:"at_ns"`
	For    time.Duration `json:"for_ns,omitempty"`
	A      []int         `json:"a,omitempty"`
	B      []int         `json:"b,omitempty"`
	Amount float64       `json:"amount,omitempty"`
	Length time.Duration `json:"length_ns,omitempty"`
	Period time.Duration `json:"period_ns,omitempty"`
	// Leader has a crash meet whoever leads the agreement on leases then; A, one
	// replica, is who it meets while nobody does.
	Leader bool `json:"leader,omitempty"`
	// Keep leaves replicas that crash what they saved, which they do once a minute.
	Keep bool `json:"keep,omitempty"`
}

// End is when a fault is over; for one that is for good, when it begins.
func (f *Fault) End() time.Duration { return f.At + f.For }

// String says what happens, for people.
func (f *Fault) String() string {
	s := string(f.Kind)
	if f.Leader {
		s += " of who leads, or of"
	}
	if f.A != nil {
		s += fmt.Sprint(" ", f.A)
	}
	if f.Keep {
		s += ", what they saved is kept"
	}
	if f.B != nil {
		s += fmt.Sprint(" | ", f.B)
	}
	if f.Amount != 0 {
		s += fmt.Sprintf(" %g", f.Amount)
	}
	if f.Length != 0 {
		s += fmt.Sprint(" ", f.Length)
	}
	if f.Period != 0 {
		s += fmt.Sprint(" every ", f.Period)
	}
	return s
}

// Bounds are what a scenario promises; a checker whose bound is 0 takes its own
// default.
type Bounds struct {
	// Digests is how long after the last fault all live replicas hold the same,
	// 0 means 3 s and what was missing at 20 MB/s (60 s more after faults of more
	// than 10 minutes).
	Digests time.Duration
	// Members is how long after the last fault all replicas know one another; 0
	// means 2.5 s.
	Members time.Duration
	// Dead is how long a dead worker may still be sent requests; 0 means 3 s.
	Dead time.Duration
	// Regret bounds the mean TTFT during the run over that of one router that
	// knows everything at once, as a factor; 0 means not judged.
	Regret float64
	// Failed bounds the share of requests that end with an error though they met
	// no dead replica or worker; always 0 but where a scenario says otherwise.
	Failed float64
	// LostToAll says that events were lost that nobody has, so that replicas
	// agree with each other but not with the engines.
	LostToAll bool
}

// Last is when the last fault is over.
func (s *Scenario) Last() time.Duration {
	var last time.Duration
	for i := range s.Faults {
		last = max(last, s.Faults[i].End())
	}
	return last
}

// Stretched returns a scenario whose work and faults, with all their times, last
// factor times as long. What settles after them takes what it took.
func (s Scenario) Stretched(factor float64) Scenario {
	longer := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor) }
	s.Duration, s.Faults = longer(s.Duration), slices.Clone(s.Faults)
	for i := range s.Faults {
		f := &s.Faults[i]
		f.At, f.For, f.Period = longer(f.At), longer(f.For), longer(f.Period)
	}
	return s
}

// On reports whether a scenario is required on a ground.
func (s *Scenario) On(p Place) bool { return slices.Contains(s.Grounds, p) }

// Validate tells what is wrong with a scenario.
func (s *Scenario) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("scenario %q: %s", s.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Name == "" || s.Doc == "":
		return bad("it needs a name and a line that says what it is")
	case len(s.Grounds) == 0:
		return bad("it is played nowhere")
	case s.Replicas < 1 || s.Replicas > 128:
		return bad("%d replicas; give 1 to 128", s.Replicas)
	case s.Workers < 1 || s.Workers > 1024:
		return bad("%d workers; give 1 to 1024", s.Workers)
	case s.Load.Sessions < 1 || s.Load.Sessions > 100_000:
		return bad("%d sessions; give 1 to 100000", s.Load.Sessions)
	case s.Duration <= 0 || s.Duration > time.Hour || s.Settle < 0 || s.Settle > time.Hour:
		return bad("it lasts %v and %v; give at most an hour each", s.Duration, s.Settle)
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		if err := f.validate(s); err != nil {
			return bad("fault %d, %s: %v", i, f.Kind, err)
		}
	}
	return nil
}

// validate tells what is wrong with a fault of a scenario.
func (f *Fault) validate(s *Scenario) error {
	of := s.Replicas
	switch f.Kind {
	case Slow, Worker, Moved, EventGap:
		of = s.Workers
	}
	for _, n := range slices.Concat(f.A, f.B) {
		if n < 0 || n >= of {
			return fmt.Errorf("there is no number %d among %d", n, of)
		}
	}
	switch {
	case !slices.Contains(faultKinds, f.Kind):
		return fmt.Errorf("there is no such fault")
	case f.At < 0 || f.For < 0 || f.End() > s.Duration+s.Settle:
		return fmt.Errorf("from %v for %v is not within the scenario", f.At, f.For)
	case f.Leader && (f.Kind != Crash || len(f.A) != 1):
		return fmt.Errorf("it can't meet who leads: that is for a crash of one")
	case f.Keep && f.Kind != Crash:
		return fmt.Errorf("only a crash leaves what was saved")
	case f.Kind == Flap && f.Period <= 0:
		return fmt.Errorf("it needs a period")
	case (f.Kind == Loss || f.Kind == Duplicate || f.Kind == Reorder || f.Kind == EventLoss) && (f.Amount <= 0 || f.Amount > 1):
		return fmt.Errorf("a share of %g; give more than 0, at most 1", f.Amount)
	case f.Kind == Narrow && f.Amount <= 0:
		return fmt.Errorf("%g bytes a second; give more than 0", f.Amount)
	case f.Kind == Slow && f.Amount <= 1:
		return fmt.Errorf("a factor of %g; give more than 1", f.Amount)
	}
	return nil
}
