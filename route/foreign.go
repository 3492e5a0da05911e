package route

import (
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
)

// addForeign adds what others sent to a worker, each request taken for an
// average one of ours, and how congested its links are.
func (r *Router) addForeign(l *cost.Load, s *fleet.Signals) {
	for tier := range l.Rho {
		l.Rho[tier] = s.Rho[tier].Value
		if gate := s.Gate[tier]; r.cfg.TierGate && gate.Source != fleet.Default {
			l.Closed[tier] = 1 - gate.Value
		}
	}
	running, waiting := s.ForeignRunning.Value, s.ForeignWaiting.Value
	l.Decoding += running
	l.ContextTokens += running * r.typical.promptTokens
	l.UniqueTokens += running * r.typical.promptTokens
	l.RemainingTokens += running * r.typical.outputTokens / 2
	if waiting <= 0 {
		return
	}
	tokens := waiting * r.typical.uncachedTokens
	if s.WaitingTokens.Source != fleet.Default && s.Waiting.Value > 0 {
		tokens = s.WaitingTokens.Value * waiting / s.Waiting.Value
	}
	l.QueuedTokens += tokens
	l.QueuedPairs += waiting * cost.Pairs(tokens/waiting, 0)
	l.QueuedSeqs += int(waiting)
}

// typical is the mean request: what one that isn't ours is taken for.
type typical struct {
	promptTokens, uncachedTokens, outputTokens float64
	requests                                   float64
}

func (t *typical) observe(promptTokens, uncachedTokens, outputTokens float64) {
	t.requests = min(t.requests+1, 200)
	t.promptTokens += (promptTokens - t.promptTokens) / t.requests
	t.uncachedTokens += (uncachedTokens - t.uncachedTokens) / t.requests
	t.outputTokens += (outputTokens - t.outputTokens) / t.requests
}
