package route

import (
	"errors"
	"fmt"
	"time"
)

// QueueConfig says when requests wait in the router for a worker rather than
// in a worker's own queue. The zero value is off.
//
// A worker's own queue is first come, first served, and what stands there can't
// be moved. While every worker of a model is saturated, nothing is lost by
// keeping requests here: they go in an order that serves more of them in time,
// and to the worker that is free first. While one is not, nothing waits here.
type QueueConfig struct {
	// Enabled turns it on, for the policies rhizome and article. Without it every
	// request goes to a worker at once, however long it will wait there. Off by
	// default: see docs/queue.md for what it was measured to be worth.
	Enabled bool `yaml:"enabled"`
	// TTFTObjective is how much work a worker may have queued, in expected time
	// of the prompts ahead, and still get more; above 0. Below it the worker's
	// own queue keeps it busy, beyond it a request goes on waiting here.
	TTFTObjective time.Duration `yaml:"ttft_objective"`
	// Admission is how long a request may be expected to wait on a worker for KV
	// memory or for a free sequence, and still go there; above 0.
	Admission time.Duration `yaml:"admission"`
	// MaxWait is how long a request waits here; then it is refused with 429.
	MaxWait time.Duration `yaml:"max_wait"`
	// MaxRequests is how many may wait at one time, 1 to 1 million; one more is
	// refused with 429.
	MaxRequests int `yaml:"max_requests"`
}

// DefaultQueue has the limits that a queue ships with. DefaultConfig has it off:
// in the laboratory it gained no goodput at any load and cost cached tokens
// under overload (docs/queue.md). It bounds waits and keeps priorities,
// for who wants that.
func DefaultQueue() QueueConfig {
	return QueueConfig{Enabled: true, TTFTObjective: 10 * time.Second, Admission: 2 * time.Second, MaxWait: 10 * time.Second, MaxRequests: 10_000}
}

// maxQueued bounds what may be set as MaxRequests.
const maxQueued = 1_000_000

// validate says what in c can't work.
func (c *QueueConfig) validate() error {
	var errs []error
	for _, d := range []struct {
		key string
		is  time.Duration
	}{{"ttft_objective", c.TTFTObjective}, {"admission", c.Admission}, {"max_wait", c.MaxWait}} {
		if d.is <= 0 && c.Enabled {
			errs = append(errs, fmt.Errorf("queue.%s is %v: want more than 0", d.key, d.is))
		}
	}
	if (c.MaxRequests < 1 || c.MaxRequests > maxQueued) && c.Enabled {
		errs = append(errs, fmt.Errorf("queue.max_requests is %d: want 1 to %d", c.MaxRequests, maxQueued))
	}
	return errors.Join(errs...)
}
