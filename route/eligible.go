package route

import (
	"errors"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/prompt"
)

// ErrTooLong says that the prompt and its output together are longer than any
// worker's context.
var ErrTooLong = errors.New("longer than the model's context")

// ExactTokens returns how many tokens a request takes at most, prompt and
// output; 0 where the prompt's length is not known exactly.
func ExactTokens(p *prompt.Request) int {
	if len(p.Tokens) == 0 || p.TextBytes > 0 || p.Prompts > 1 {
		return 0
	}
	return len(p.Tokens) + p.MaxTokens
}

// eligible keeps of the search's members those that may serve q: those that were
// not tried, are pinned if q is, have room for the request's tokens, and among
// them the best grade there is. So while all of a model's workers are out, the
// least bad of them are asked: their state may be wrong, or past.
func (s *search) eligible(q *Query) error {
	s.fit = s.fit[:0]
	best, short := fleet.Draining, false
	tokens := ExactTokens(q.Prompt)
	for _, m := range s.members {
		if excluded(q.Exclude, m.Target) || q.Pin != "" && !pinned(q.Pin, m) {
			continue
		}
		if most := s.view.MaxModelLen(q.Prompt.Model, m); most > 0 && tokens > most {
			short = true
			continue
		}
		grade := m.Grade(s.now)
		m.Seen(s.now, grade)
		if grade == fleet.Draining && q.Pin == "" || grade > best && len(s.fit) > 0 {
			continue
		}
		if grade < best {
			best, s.fit = grade, s.fit[:0]
		}
		s.fit = append(s.fit, m)
	}
	s.members = s.fit
	switch {
	case len(s.fit) > 0:
		return nil
	case short && len(q.Exclude) == 0:
		return ErrTooLong
	}
	return ErrNoWorker
}

// pinned reports whether a pin names m: its target or its worker by id, or its
// worker by the name or URL that operators gave it.
func pinned(pin string, m *fleet.Member) bool {
	w := m.Worker
	return pin == m.Target.String() || pin == w.ID.String() || pin == w.Spec.URL || w.Spec.ID != "" && pin == w.Spec.ID
}

// expectedOutput returns how long q's output becomes, by what its caller
// expects within what is usual for its tenant, or else as predicted.
func expectedOutput(q *Query, predicted float64, usual cost.Span) float64 {
	switch n := q.ExpectedOutputTokens; {
	case q.Prompt.Kind == prompt.Embedding:
		return 0
	case n <= 0:
		return predicted
	case q.Prompt.MaxTokens > 0:
		return min(usual.Clamp(float64(n)), float64(q.Prompt.MaxTokens))
	default:
		return usual.Clamp(float64(n))
	}
}

// settleCircuit tells the circuit of d's worker how the request ended.
func settleCircuit(now clock.Instant, d *Decision, o *Outcome) {
	c := d.member.Circuit
	switch {
	case o.Unreachable: // of whatever request: the worker did not see it
		c.Failed(now, d.trial, fleet.Cause{Request: uint64(now), Caller: uint64(now)})
	case o.Result == Failed:
		c.Failed(now, d.trial, fleet.Cause{Request: o.Cause, Caller: o.Caller})
	case o.Result == Busy:
		c.Busy(now, d.trial, o.RetryAfter)
	case o.Result == Completed:
		c.Succeeded(now, d.trial, o.Caller)
	default:
		c.Neutral(d.trial)
	}
}
