package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// restartWorker restarts a worker when it is time, unless sending ends before.
func (d *demo) restartWorker(sending context.Context) error {
	if d.cfg.RestartWorkerAfter == 0 || d.cfg.Clock.Sleep(sending, d.cfg.RestartWorkerAfter) != nil {
		return nil
	}
	if d.workers.Restart == nil {
		return errors.New("restart a worker: these can't be restarted")
	}
	// The last one: the first ones have the lead of those who were there when
	// all were alike.
	if err := d.workers.Restart(len(d.workers.Lines) - 1); err != nil {
		return fmt.Errorf("restart a worker: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.workerRestarts++
	return nil
}

// restartRouter ends the router when it is time, unless sending ends before,
// and starts another in its place. Conversations wait meanwhile.
func (d *demo) restartRouter(sending context.Context) error {
	if d.cfg.RestartRouterAfter == 0 || d.cfg.Clock.Sleep(sending, d.cfg.RestartRouterAfter) != nil {
		return nil
	}
	open := d.gate.shut()
	defer open()
	if err := d.closeRouter(); err != nil {
		return fmt.Errorf("end the router: %w", err)
	}
	past := d.routerStats()
	router, err := d.cfg.StartRouter(d.alive, d.workers.Lines)
	if err != nil {
		return fmt.Errorf("start the router again: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.router, d.past = router, past
	d.routerRestarts++
	return nil
}

// closeRouter ends the router, unless that was tried before.
func (d *demo) closeRouter() error {
	d.mu.Lock()
	shut := d.router.Close
	d.router.Close = nil
	d.mu.Unlock()
	if shut == nil {
		return nil
	}
	return shut()
}

// routerStats returns what all routers of the demo counted.
func (d *demo) routerStats() RouterStats {
	d.mu.Lock()
	router, sum := d.router, d.past
	d.mu.Unlock()
	s := router.Stats()
	sum.Requests += s.Requests
	sum.Failed += s.Failed
	sum.CachedPredicted += s.CachedPredicted
	sum.CachedActual += s.CachedActual
	sum.CachedAbsError += s.CachedAbsError
	return sum
}

// half is what the answers to the requests of one half of a demo told.
type half struct{ prompt, cached int64 }

func (h half) hitShare() Figure {
	if h.prompt == 0 {
		return unknown
	}
	return Figure(float64(h.cached) / float64(h.prompt))
}

// halfOf returns which half of the demo an instant is in: 0, or 1.
func (d *demo) halfOf(t clock.Instant) int {
	if t.Sub(d.start) < d.cfg.Duration/2 {
		return 0
	}
	return 1
}

// Middle returns when what happens half-way through a demo is to happen.
func Middle(duration time.Duration) time.Duration {
	if duration <= 0 {
		duration = defaultDuration
	}
	return duration / 2
}
