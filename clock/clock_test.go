package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRealFollowsTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Real()
		if c.Now() != 0 {
			t.Errorf("starts at %v", c.Now())
		}
		if err := c.Sleep(t.Context(), time.Hour); err != nil || c.Now() != Instant(time.Hour) {
			t.Errorf("after an hour: %v, %v", c.Now(), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || c.Now().Sub(Instant(time.Hour)) != time.Minute {
			t.Errorf("a sleep ends with its context: %v at %v", err, c.Now())
		}
		if err := c.Sleep(ctx, 0); err == nil {
			t.Error("no time to wait, but the context has ended")
		}
	})
}

func TestVirtualMovesOnlyWhenTold(t *testing.T) {
	var c Virtual
	c.Advance(3 * time.Second)
	c.Advance(-time.Second) // time never goes back
	if err := c.Sleep(t.Context(), 2*time.Second); err != nil || c.Now() != Instant(5*time.Second) {
		t.Errorf("%v, %v", c.Now(), err)
	}
	if got := c.Now().Add(time.Millisecond).Sub(c.Now()); got != time.Millisecond {
		t.Errorf("Add and Sub disagree: %v", got)
	}
	if got := c.Now().Micros(); got != 5e6 {
		t.Errorf("%v µs", got)
	}
}

func TestRandStreams(t *testing.T) {
	draw := func(seed uint64, name string) uint64 { return Rand(seed, name).Uint64() }
	if draw(1, "a") != draw(1, "a") {
		t.Error("equal seeds and names must draw alike")
	}
	if draw(1, "a") == draw(1, "b") || draw(1, "a") == draw(2, "a") {
		t.Error("names and seeds must tell streams apart")
	}
}
