package fleet

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
)

// Typical is the request that one of which nothing is known is taken for.
type Typical struct{ PromptTokens, UncachedTokens, OutputTokens float64 }

// Rough returns a member's load from sums alone: what is in flight here, what
// peers and others have there, each foreign request taken for the typical one.
// It looks at no request by itself, so it knows neither how far the prefills at
// the head have come, beyond the time they had, nor who will finish first. It
// is for telling which of many members deserve a closer look.
func (m *Member) Rough(now clock.Instant, class *cost.Class, tokenTime time.Duration, typical Typical) cost.Load {
	l := &m.Ledger
	load := cost.Load{
		QueuedTokens: l.sums.queuedTokens, QueuedPairs: l.sums.queuedPairs, QueuedSeqs: len(l.queue),
		Decoding: l.sums.sequences, ContextTokens: l.sums.contextTokens, UniqueTokens: l.sums.ownTokens + l.occupied.tokens,
	}
	if len(l.queue) > 0 {
		// As much as can have been computed, at most what the head has of it.
		ran := min(l.queue[0].UncachedTokens, float64(now.Sub(l.headSince).Microseconds())/max(class.TokenMicros, 1e-9))
		load.QueuedPairs *= 1 - ran/max(1, load.QueuedTokens)
		load.QueuedTokens -= ran
	}
	if l.sums.sequences > 0 && tokenTime > 0 {
		left := l.sums.finishSeconds - l.sums.sequences*time.Duration(now).Seconds()
		load.RemainingTokens = max(l.sums.sequences, left/tokenTime.Seconds())
	}
	if s := m.signals.Load(); s != nil {
		running, waiting := s.ForeignRunning.Value, s.ForeignWaiting.Value
		load.Decoding += running
		load.ContextTokens += running * typical.PromptTokens
		load.UniqueTokens += running * typical.PromptTokens
		load.RemainingTokens += running * typical.OutputTokens / 2
		load.QueuedTokens += waiting * typical.UncachedTokens
		load.QueuedSeqs += int(waiting)
		for t := range load.Rho {
			load.Rho[t] = s.Rho[t].Value
		}
	}
	peers := m.PeerShare(now)
	peers.AddTo(&load)
	return load
}

// Limits puts the KV pool and the number of sequences that the worker told into
// its constants.
func (m *Member) Limits(class *cost.Class) {
	s := m.signals.Load()
	if s == nil {
		return
	}
	if s.CapacityTokens.Source != Default {
		class.CapacityTokens = s.CapacityTokens.Value
	}
	if s.MaxSeqs.Value > 0 {
		class.MaxSeqs = int(s.MaxSeqs.Value)
	}
}
