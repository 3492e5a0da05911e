package fleet

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

const (
	// openFailures is how many failures in a row, with no success between them,
	// open a circuit.
	openFailures = 5
	// openCauses is how many different requests they must come from: one that
	// fails wherever it is sent says nothing about the workers.
	openCauses = 3
	// failureMemory is how long a failure counts, and how long it counts that a
	// caller was served.
	failureMemory = time.Minute
	// firstOpen is how long a circuit stays open the first time; each time that
	// a trial fails it doubles, to maxOpen.
	firstOpen = 2 * time.Second
	maxOpen   = time.Minute
	// defaultBusy is how long a worker that says it is busy, but not for how
	// long, is left alone.
	defaultBusy = time.Second
)

// Circuit says whether new requests should go to a worker, by how those before
// ended. All ranks of a worker share one. It is safe for concurrent use.
//
// Closed, it lets everything through. Failures open it; after a while it lets
// one request through as a trial, whose success closes it. What is neither a
// success nor the worker's failure changes nothing.
//
// One caller's failures alone do not open it while others are served: whoever
// sends what an engine can't digest would else take away every worker, one
// after the other, from everybody.
type Circuit struct {
	mu       sync.Mutex
	failures []failure // since the last success, at most openFailures
	served   [2]served // of two callers, the last and the last one before it
	open     bool
	until    clock.Instant // open without a trial until then
	wait     time.Duration // how long it was open last
	trial    bool          // one is under way
	busy     clock.Instant // left alone until then
	draining bool
	opened   uint64
	// fitFrom is from when on nothing speaks against a request, for Grade to read
	// without the lock: every change ends with settled.
	fitFrom atomic.Int64
}

// failure is one request that the worker failed.
type failure struct {
	at    clock.Instant
	cause Cause
}

// Cause tells apart what failures come from, so that many are not taken for a
// worker's that are a request's or a caller's.
type Cause struct {
	Request uint64 // the same for the same request
	Caller  uint64 // the same for the same caller
}

// served is a caller whose request the worker answered.
type served struct {
	caller uint64
	at     clock.Instant
	ever   bool
}

// Grade says how welcome a new request is, best first.
type Grade uint8

const (
	// Fit: send it.
	Fit Grade = iota
	// BusyNow: the worker asked to be left alone for a while.
	BusyNow
	// Suspect: it does not answer probes, or its circuit is open.
	Suspect
	// Draining: it gets nothing new, whatever else.
	Draining
	grades
)

var gradeNames = [grades]string{"fit", "busy", "suspect", "draining"}

// String returns the name that the admin API shows.
func (g Grade) String() string { return gradeNames[g] }

// Grade returns how welcome a request is now.
func (c *Circuit) Grade(now clock.Instant) Grade {
	if int64(now) >= c.fitFrom.Load() {
		return Fit
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.draining:
		return Draining
	case c.open && (c.trial || now < c.until):
		return Suspect
	case now < c.busy:
		return BusyNow
	}
	return Fit
}

// never is when a circuit is fit that is open, or drains.
const never = math.MaxInt64

// settled ends a change.
func (c *Circuit) settled() {
	fitFrom := int64(c.busy)
	if c.draining || c.open {
		fitFrom = never
	}
	c.fitFrom.Store(fitFrom)
	c.mu.Unlock()
}

// Begin records that a request is sent to the worker. It reports whether that
// is the trial of an open circuit; the same is to be told to the end.
func (c *Circuit) Begin(now clock.Instant) (trial bool) {
	if c.fitFrom.Load() != never {
		return false // it is not open
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open || c.trial || now < c.until {
		return false
	}
	c.trial = true
	return true
}

// Succeeded records that the worker answered a caller's request.
func (c *Circuit) Succeeded(now clock.Instant, trial bool, caller uint64) {
	c.mu.Lock()
	defer c.settled()
	c.endTrial(trial)
	if last := c.served[0]; last.ever && last.caller != caller {
		c.served[1] = last
	}
	c.served[0] = served{caller, now, true}
	if c.open && !trial {
		return // begun before it opened: says nothing of now
	}
	c.failures, c.open, c.wait = c.failures[:0], false, 0
}

// Failed records that the worker failed a request. A failure that has nothing
// to do with what was asked, such as that nobody takes the connection, gives a
// cause of its own each time, in both its parts.
func (c *Circuit) Failed(now clock.Instant, trial bool, cause Cause) {
	c.mu.Lock()
	defer c.settled()
	c.endTrial(trial)
	switch {
	case trial:
		c.wait = min(2*c.wait, maxOpen)
	case c.open:
		return
	default:
		if len(c.failures) == openFailures {
			c.failures = append(c.failures[:0], c.failures[1:]...)
		}
		c.failures = append(c.failures, failure{now, cause})
		if !c.convinced(now) {
			return
		}
		c.wait = firstOpen
		c.opened++
	}
	c.open, c.until = true, now.Add(c.wait)
}

// convinced reports whether the failures are enough to open.
func (c *Circuit) convinced(now clock.Instant) bool {
	if len(c.failures) < openFailures || now.Sub(c.failures[0].at) > failureMemory {
		return false
	}
	requests, callers := make(map[uint64]bool, openFailures), make(map[uint64]bool, openFailures)
	for _, f := range c.failures {
		requests[f.cause.Request], callers[f.cause.Caller] = true, true
	}
	lone := c.failures[0].cause.Caller
	return len(requests) >= openCauses && (len(callers) > 1 || !c.servedOther(now, lone))
}

// servedOther reports whether the worker lately served another caller than one.
func (c *Circuit) servedOther(now clock.Instant, caller uint64) bool {
	for _, s := range c.served {
		if s.ever && s.caller != caller && now.Sub(s.at) <= failureMemory {
			return true
		}
	}
	return false
}

// Busy records that the worker turned a request away for want of room, and for
// how long it wants to be left alone; 0 for unsaid.
func (c *Circuit) Busy(now clock.Instant, trial bool, d time.Duration) {
	c.mu.Lock()
	defer c.settled()
	c.endTrial(trial)
	if d <= 0 {
		d = defaultBusy
	}
	c.busy = max(c.busy, now.Add(d))
}

// Neutral records the end of a request that says nothing of the worker: the
// caller's fault, or the caller went away.
func (c *Circuit) Neutral(trial bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endTrial(trial)
}

func (c *Circuit) endTrial(trial bool) {
	if trial {
		c.trial = false
	}
}

// SetDraining makes the worker get nothing new, or get it again.
func (c *Circuit) SetDraining(draining bool) {
	c.mu.Lock()
	defer c.settled()
	c.draining = draining
}

// Opened counts how often the circuit opened.
func (c *Circuit) Opened() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}
