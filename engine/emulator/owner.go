package emulator

import (
	"context"
	"fmt"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// owner is the goroutine that alone touches the model. It follows modelled
// time: whenever it wakes, late or not, it lets everything happen that was due
// by now, at the time it was due, so lateness never adds up.
type owner struct {
	cfg     Config
	model   *model.Worker
	feed    *feed
	metrics *metrics
	jobs    map[uint64]*job
	lastID  uint64

	commands   chan func(*owner)
	alarm      alarm
	lastReport clock.Instant

	storedBlocks int64  // in HBM, in this life
	past         Totals // of earlier lives

	firsts           int64 // first tokens
	sumLate, maxLate float64
}

// restart begins a new life of the engine: m is idle and empty, what the old
// one had to do is forgotten.
func (o *owner) restart(m *model.Worker, metrics *metrics) error {
	o.past, o.storedBlocks = o.totals(), 0
	o.model, o.metrics = m, metrics
	clear(o.jobs)
	o.firsts, o.sumLate, o.maxLate = 0, 0, 0
	return o.feed.restart()
}

func (o *owner) now() float64 { return modelled(o.cfg, o.cfg.Clock.Now()) }

// modelled returns the modelled micros at an instant.
func modelled(cfg Config, t clock.Instant) float64 { return t.Micros() * cfg.Speedup }

// run owns the model until ctx ends.
func (o *owner) run(ctx context.Context) {
	defer o.alarm.close()
	for {
		o.catchUp()
		o.arm()
		select {
		case <-ctx.Done():
			return
		case <-o.alarm.rings():
		case do := <-o.commands:
			do(o)
			o.drain()
		}
	}
}

// drain runs the commands that wait already, so that a burst costs one pass.
func (o *owner) drain() {
	for {
		select {
		case do := <-o.commands:
			do(o)
		default:
			return
		}
	}
}

// catchUp lets happen what is due.
func (o *owner) catchUp() {
	now := o.cfg.Clock.Now()
	o.model.Advance(modelled(o.cfg, now), o.sink)
	if now.Sub(o.lastReport) >= o.cfg.TokenInterval {
		o.lastReport = now
		o.model.ReportTokens(o.sink)
	}
	o.feed.flush()
	o.feed.release(now)
}

// arm sets the alarm to the next thing that somebody outside can see: a first
// token, an end, decode tokens that may be told again, or late KV events.
func (o *owner) arm() {
	next, ok := o.feed.nextDue()
	if at, busy := o.model.Next(); busy {
		if iteration, ok := o.model.NextIteration(); ok {
			at = min(at, max(iteration, modelled(o.cfg, o.lastReport.Add(o.cfg.TokenInterval))))
		}
		wall := clock.Instant(at/o.cfg.Speedup*1e3) + 1 // rounded up, so that it is due when it rings
		if !ok || wall < next {
			next, ok = wall, true
		}
	}
	if !ok {
		o.alarm.stop()
		return
	}
	o.alarm.set(next.Sub(o.cfg.Clock.Now()))
}

// submit gives a call to the model.
func (o *owner) submit(c *call) {
	for i, j := range c.jobs {
		o.lastID++
		j.id = o.lastID
		err := o.model.Submit(c.arrived, model.Request{
			ID: j.id, PromptTokens: j.promptTokens, OutputTokens: j.answer.n, Keys: j.keys,
		})
		if err != nil {
			for _, earlier := range c.jobs[:i] {
				o.cancel(earlier)
			}
			c.mu.Lock()
			c.err, c.pending = fmt.Errorf("the engine refused the request: %w", err), 0
			c.mu.Unlock()
			c.signal()
			return
		}
		o.jobs[j.id] = j
	}
}

// cancel withdraws a job that may have ended already.
func (o *owner) cancel(j *job) {
	if o.jobs[j.id] == nil {
		return
	}
	o.metrics.aborted++
	if o.model.Cancel(j.id) {
		delete(o.jobs, j.id)
	}
}

// clearCache empties the cache, as far as the engine's own reset does, unless
// something runs.
func (o *owner) clearCache() bool {
	o.catchUp()
	ok := o.model.ClearCache(o.feed.dialect.clearsTiers, o.sink)
	o.feed.flush()
	return ok
}

// sink receives what happens in the model.
func (o *owner) sink(e model.Event) {
	j := o.jobs[e.ID]
	switch e.Kind {
	case model.Stored, model.Removed, model.Cleared:
		if e.Kind == model.Stored && e.Tier == kv.HBM {
			o.storedBlocks += int64(len(e.Blocks))
		}
		if j != nil {
			o.feed.tell(e, j.sequence)
		} else {
			o.feed.tell(e, nil)
		}
		return
	case model.Preempted:
		return // the model counts it
	case model.Admitted:
		if j.admitted < 0 {
			j.admitted = e.At
			o.metrics.queued(e.At - j.call.arrived)
		}
		return
	}
	o.feed.flush() // engines publish what a step did before they tell its tokens
	o.progress(j, e)
}

// progress notes tokens and ends of a job.
func (o *owner) progress(j *job, e model.Event) {
	c := j.call
	c.mu.Lock()
	switch e.Kind {
	case model.FirstToken:
		j.out = 1
		j.hbmTokens, j.tierTokens = e.HBMTokens, e.TierTokens
		j.firstAt, j.clock, j.busy = e.At, e.At, o.model.BusyMicros()
		o.metrics.firstToken(j, e.At)
		late := o.cfg.Clock.Now().Micros() - e.At/o.cfg.Speedup
		o.firsts++
		o.sumLate += late
		o.maxLate = max(o.maxLate, late)
	case model.Tokens:
		j.out += e.Tokens
		o.metrics.moreTokens(e.Tokens, e.At-j.lastAt)
	case model.Finished, model.Cancelled:
		j.clock, j.busy = e.At, o.model.BusyMicros()
		c.pending--
		delete(o.jobs, j.id)
		if e.Kind == model.Finished {
			o.metrics.finished(j, e.At)
		}
	}
	j.lastAt = e.At
	wake := c.stream || c.pending == 0
	c.mu.Unlock()
	if wake {
		c.signal()
	}
}
