package fleet

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
)

// Steps is the average decode step of a worker between two looks at its
// metrics, by the times between tokens that it counts itself: whoever sent the
// requests, and without the way to the router in it. The zero value is no step.
type Steps struct {
	Micros        float64       `json:"micros"`
	Sequences     float64       `json:"sequences"`      // B
	PrefillTokens float64       `json:"prefill_tokens"` // P, of a step
	Count         float64       `json:"count"`          // steps that this averages
	At            clock.Instant `json:"at_nanos"`
}

// stepCounters are the counters at the last look that made a Steps.
type stepCounters struct {
	tokens, seconds, prefilled float64
	running                    float64
	seen                       bool
	last                       Steps
}

// leastTokens is how many tokens make an average.
const leastTokens = 64

// observe takes one scrape and returns the newest average. The context that the
// sequences read is not among what engines tell: the share of the KV pool in
// use counts a prefix once that many share, and a step reads it for each.
func (c *stepCounters) observe(now clock.Instant, t *engine.RankTelemetry) Steps {
	if !t.InterTokens.Known || !t.InterTokenSeconds.Known || !t.PrefilledTokens.Known || !t.Running.Known {
		return c.last
	}
	tokens, seconds := t.InterTokens.Value-c.tokens, t.InterTokenSeconds.Value-c.seconds
	prefilled := t.PrefilledTokens.Value - c.prefilled
	running := (t.Running.Value + c.running) / 2
	again := c.seen && tokens >= 0 && seconds >= 0 && prefilled >= 0
	if again && tokens < leastTokens {
		return c.last
	}
	idle := running < 1 || t.Running.Value == 0 || c.running == 0
	*c = stepCounters{t.InterTokens.Value, t.InterTokenSeconds.Value, t.PrefilledTokens.Value, t.Running.Value, true, c.last}
	if !again || idle {
		return c.last // a new process, or a gauge that says nothing of the time between
	}
	c.last = Steps{
		Micros: seconds / tokens * 1e6, Sequences: running,
		PrefillTokens: prefilled * running / tokens, Count: tokens / running, At: now,
	}
	return c.last
}
