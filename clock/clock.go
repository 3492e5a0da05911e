// Package clock is the one way to read time and to draw randomness.
//
// Everything whose behaviour depends on time takes a [Clock] (shells) or an
// [Instant] argument (pure code), so that the simulator, the chaos scenarios
// and the tests run the real code in virtual time. The central type is
// [Instant]; start reading there.
package clock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// Instant is a point in time as nanoseconds since its clock's own zero. It is
// monotonic and only comparable with instants of the same clock.
type Instant int64

// Add returns t shifted by d.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns how much later t is than u; negative when t is earlier.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Micros returns t in microseconds since the clock's zero.
func (t Instant) Micros() float64 { return float64(t) / 1e3 }

// Clock tells the time and waits for it.
type Clock interface {
	// Now returns the current instant; it never goes back.
	Now() Instant
	// Sleep waits for d or until ctx ends, whose error it then returns.
	Sleep(ctx context.Context, d time.Duration) error
}

// Real returns a clock that starts at zero now and follows the machine's
// monotonic clock. Inside a testing/synctest bubble it follows the bubble's.
func Real() Clock { return realClock{zero: time.Now()} }

type realClock struct{ zero time.Time }

func (c realClock) Now() Instant { return Instant(time.Since(c.zero)) }

func (c realClock) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Virtual is a clock that moves only when told. Its zero value stands at
// instant 0. It is safe for concurrent use; Sleep moves it forward itself,
// which is what a single-threaded simulation wants.
type Virtual struct {
	mu  sync.Mutex
	now Instant
}

// Now returns the instant the clock was last moved to.
func (c *Virtual) Now() Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d; a negative d is ignored, since time
// never goes back.
func (c *Virtual) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d > 0 {
		c.now = c.now.Add(d)
	}
}

// Sleep advances the clock by d and returns the state of ctx.
func (c *Virtual) Sleep(ctx context.Context, d time.Duration) error {
	c.Advance(d)
	return ctx.Err()
}

// Wall returns the time of day. It is for certificates, names and logs alone:
// nothing else may depend on it, since it jumps. A build with the tag "lab" can
// be told to have it wrong: see wall_lab.go.
func Wall() time.Time { return wall() }

// Rand returns a generator for one named stream of randomness. Equal seeds and
// names give equal sequences, and streams of different names are independent,
// so that adding one consumer never shifts what another draws.
func Rand(seed uint64, name string) *rand.Rand { return rand.New(Source(seed, name)) }

// Source returns what Rand draws from, for one that wants to put it back to
// what it was: a copy of it draws the same.
func Source(seed uint64, name string) *rand.PCG { return rand.NewPCG(seed, xxh3.HashString(name)) }
