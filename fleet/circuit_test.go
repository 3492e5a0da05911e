package fleet

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
)

// fail makes a circuit see n failures of different requests.
func fail(c *Circuit, now clock.Instant, n int) {
	for i := range n {
		c.Failed(now, false, Cause{Request: uint64(i)})
	}
}

func TestCircuitOpensAndCloses(t *testing.T) {
	var c Circuit
	now := clock.Instant(time.Hour)
	fail(&c, now, openFailures-1)
	c.Succeeded(now, false, 0)
	fail(&c, now, openFailures-1)
	if g := c.Grade(now); g != Fit {
		t.Fatalf("%v before enough failures in a row", g)
	}
	c.Failed(now, false, Cause{Request: 99})
	for wait := firstOpen; ; wait = min(2*wait, maxOpen) {
		if g := c.Grade(now.Add(wait - 1)); g != Suspect || c.Begin(now.Add(wait-1)) {
			t.Fatalf("%v within %v", g, wait)
		}
		now = now.Add(wait)
		if g := c.Grade(now); g != Fit || !c.Begin(now) {
			t.Fatalf("%v after %v: want a trial", g, wait)
		}
		if g := c.Grade(now); g != Suspect || c.Begin(now) {
			t.Fatal("a second trial beside the first")
		}
		if wait == maxOpen {
			break
		}
		c.Failed(now, true, Cause{Request: 1})
	}
	c.Succeeded(now, true, 0)
	if c.Grade(now) != Fit || c.Opened() != 1 {
		t.Errorf("after a good trial: %v, opened %d times", c.Grade(now), c.Opened())
	}
	fail(&c, now, openFailures)
	if g := c.Grade(now.Add(firstOpen)); g != Fit {
		t.Errorf("the time open starts small again, but it is %v", g)
	}
}

// One request that fails wherever it is sent opens nothing; nor do callers'
// own faults, or failures of long ago.
func TestCircuitIsNotOpenedBy(t *testing.T) {
	now := clock.Instant(time.Hour)
	for name, do := range map[string]func(c *Circuit){
		"one request": func(c *Circuit) {
			for range 100 {
				c.Failed(now, false, Cause{Request: 7})
				c.Failed(now, false, Cause{Request: 8})
			}
		},
		"neutral ends": func(c *Circuit) {
			for range 100 {
				c.Neutral(false)
			}
		},
		"rare failures": func(c *Circuit) {
			for i := range 100 {
				c.Failed(now.Add(time.Duration(i)*failureMemory/(openFailures-2)), false, Cause{Request: uint64(i)})
			}
		},
	} {
		var c Circuit
		do(&c)
		if c.Opened() != 0 {
			t.Errorf("%s opened the circuit", name)
		}
	}
}

// Many requests of one caller fail, in a row and all different, as if it looked
// for what the engine can't digest. While others are served that is its own
// matter; when nobody else is there to tell, or others fail too, the circuit
// opens.
func TestOneCallersFailuresOpenNothingForOthers(t *testing.T) {
	const poisoner, other, third = 1, 2, 3
	at := clock.Instant(time.Hour)
	poison := func(c *Circuit, now clock.Instant) {
		for i := range 20 {
			c.Failed(now, false, Cause{Request: uint64(i), Caller: poisoner})
		}
	}
	for name, step := range map[string]struct {
		do   func(c *Circuit)
		open bool
	}{
		"another was just served": {func(c *Circuit) { c.Succeeded(at, false, other); poison(c, at) }, false},
		"another was served before it": {func(c *Circuit) {
			c.Succeeded(at, false, other)
			for range 3 {
				c.Succeeded(at, false, poisoner)
			}
			poison(c, at)
		}, false},
		"two others were served": {func(c *Circuit) {
			c.Succeeded(at, false, other)
			c.Succeeded(at, false, third)
			poison(c, at)
		}, false},
		"nobody else ever called": {func(c *Circuit) { c.Succeeded(at, false, poisoner); poison(c, at) }, true},
		"others called long ago":  {func(c *Circuit) { c.Succeeded(at, false, other); poison(c, at.Add(2*failureMemory)) }, true},
		"another fails too": {func(c *Circuit) {
			c.Succeeded(at, false, other)
			poison(c, at)
			c.Failed(at, false, Cause{Request: 99, Caller: other})
		}, true},
	} {
		var c Circuit
		step.do(&c)
		if open := c.Opened() > 0; open != step.open {
			t.Errorf("%s: open %v, want %v", name, open, step.open)
		}
	}
}

func TestBusyIsNoFailure(t *testing.T) {
	var c Circuit
	now := clock.Instant(time.Hour)
	for range 100 {
		c.Busy(now, false, 3*time.Second)
	}
	c.Busy(now, false, 0) // shorter: the longer one counts
	if c.Grade(now) != BusyNow || c.Grade(now.Add(3*time.Second)) != Fit || c.Opened() != 0 {
		t.Errorf("%v now, %v after 3 s, opened %d times", c.Grade(now), c.Grade(now.Add(3*time.Second)), c.Opened())
	}
	c.SetDraining(true)
	if c.Grade(now.Add(time.Hour)) != Draining {
		t.Error("a draining worker is asked")
	}
}

// Whatever happens, a trial that began ends, and a circuit can be closed again.
func TestCircuitNeverGetsStuck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Circuit
		now := clock.Instant(time.Hour)
		var open []bool // requests under way: whether they are trials
		trials := 0
		end := func(i int) {
			trial := open[i]
			open = append(open[:i], open[i+1:]...)
			if trial {
				trials--
			}
			switch rapid.IntRange(0, 3).Draw(t, "end") {
			case 0:
				c.Succeeded(now, trial, rapid.Uint64Range(0, 2).Draw(t, "caller"))
			case 1:
				c.Failed(now, trial, Cause{rapid.Uint64Range(0, 5).Draw(t, "request"), rapid.Uint64Range(0, 2).Draw(t, "caller")})
			case 2:
				c.Busy(now, trial, time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms"))*time.Millisecond)
			case 3:
				c.Neutral(trial)
			}
		}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause")) * time.Millisecond)
			if len(open) > 0 && rapid.Bool().Draw(t, "ends") {
				end(rapid.IntRange(0, len(open)-1).Draw(t, "which"))
				continue
			}
			trial := c.Begin(now)
			if trial {
				trials++
			}
			open = append(open, trial)
			if trials > 1 {
				t.Fatal("two trials at one time")
			}
		}
		for len(open) > 0 {
			end(0)
		}
		now = now.Add(2 * maxOpen)
		if g := c.Grade(now); g != Fit {
			t.Fatalf("at rest, long after: %v", g)
		}
		c.Succeeded(now, c.Begin(now), 0)
		if c.Grade(now) != Fit || c.open {
			t.Fatalf("a success leaves it %v", c.Grade(now))
		}
	})
}

func TestLives(t *testing.T) {
	w, err := engine.NewWorker("c", engine.Spec{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	late := errors.Join(errors.New("GET /v1/models"), context.DeadlineExceeded)
	if !lives(w, 0, nil) || lives(w, 0, late) || lives(w, 0, errors.New("connection refused")) {
		t.Error("a silent worker lives by its probes alone")
	}
}
