package route

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

const (
	// learnedEvery is how often peers are told what was learned, if it changed.
	learnedEvery = time.Second
	// rhoHalfLife is how fast what a replica saw of a link loses weight.
	rhoHalfLife = 30 * time.Second
	// toldRho is the change of a link's utilisation that peers are told of.
	toldRho = 0.02
	// maxFitBytes and maxFits bound what is kept of the fits of a peer.
	maxFitBytes, maxFits = 16 << 10, 256
)

// observer is who saw a link, and which.
type observedLink struct {
	target kv.Target
	tier   kv.Tier
}

// observedRho is a link's utilisation as a peer saw it.
type observedRho struct {
	writer core.Replica
	rho    float64
	at     clock.Instant
}

// toldFit is a class whose fit is told, with what it rests on.
type toldFit struct {
	class ClassKey
	state cost.FitState
}

// learned collects what peers should be told of what was learned since they
// were told last. It needs r.mu.
func (p *peering) learned(r *Router, members []*fleet.Member) (fits []toldFit, rhos map[observedLink]float64) {
	for _, c := range r.byKey() {
		if n := c.fit.Samples(); n > p.saidSamples[c.key]+p.saidSamples[c.key]/10 {
			p.saidSamples[c.key] = n
			fits = append(fits, toldFit{c.key, c.fit.State(c.base)})
		}
	}
	rhos = make(map[observedLink]float64)
	if len(p.saidRho) > 2*int(kv.NumTiers)*(len(members)+16) {
		clear(p.saidRho) // most are of targets that are gone
	}
	for _, m := range members {
		s := m.Signals()
		for tier := kv.CPU; tier < kv.NumTiers; tier++ {
			at := observedLink{m.Target, tier}
			if v := s.Rho[tier]; v.Source == fleet.Learned && math.Abs(v.Value-p.saidRho[at]) >= toldRho {
				p.saidRho[at], rhos[at] = v.Value, v.Value
			}
		}
	}
	return fits, rhos
}

// putLearned puts it on this replica's pages. Within Do.
func putLearned(now clock.Instant, c *core.Core, fits []toldFit, rhos map[observedLink]float64) {
	for i := range fits {
		key, _ := json.Marshal(fits[i].class) // strings alone
		if value, err := EncodeFits(map[ClassKey]cost.FitState{fits[i].class: fits[i].state}); err == nil {
			c.Put(now, core.Fits, string(key), value, 0)
		}
	}
	// order-free: each value has a place of its own
	for at, v := range rhos {
		c.Put(now, core.Links, core.TargetKey(at.target)+string([]byte{byte(at.tier)}), []byte{byte(math.Round(255 * min(1, max(0, v))))}, time.Minute)
	}
}

// hearRho takes what a peer saw of a link. It needs r.mu.
func (p *peering) hearRho(h *heardValue) {
	if len(h.key) != targetKeyBytes+1 || !h.gone && len(h.value) != 1 {
		p.bad.Add(1)
		return
	}
	t, ok := core.TargetOf(h.key[:targetKeyBytes])
	at := observedLink{t, kv.Tier(h.key[targetKeyBytes])}
	if !ok || at.tier >= kv.NumTiers {
		p.bad.Add(1)
		return
	}
	seen := slices.DeleteFunc(p.rhos[at], func(o observedRho) bool { return o.writer == h.writer })
	if !h.gone {
		seen = append(seen, observedRho{h.writer, float64(h.value[0]) / 255, h.at})
	}
	if p.rhos[at] = seen; len(seen) == 0 {
		delete(p.rhos, at)
	}
}

// linkUse is how busy a member's links are by what all replicas saw, if others
// saw anything.
type linkUse struct {
	combined bool
	rho      [kv.NumTiers]fleet.Signal
}

// putInto puts it in place of what this replica saw.
func (u *linkUse) putInto(l *cost.Load) {
	if u.combined {
		for tier := range l.Rho {
			l.Rho[tier] = u.rho[tier].Value
		}
	}
}

// combine makes of what this replica saw of a member's links what all did, as u:
// Σ v·2^(−age/30 s) over the sum of the weights. It needs r.mu.
func (p *peering) combine(now clock.Instant, t kv.Target, s *fleet.Signals, u *linkUse) {
	if p == nil || len(p.rhos) == 0 {
		return
	}
	weight := func(at clock.Instant) float64 { return math.Exp2(-float64(now.Sub(at)) / float64(rhoHalfLife)) }
	for tier := kv.CPU; tier < kv.NumTiers; tier++ {
		seen := p.rhos[observedLink{t, tier}]
		if len(seen) == 0 {
			continue
		}
		if !u.combined {
			u.combined, u.rho = true, s.Rho
		}
		var sum, weights float64
		newest := s.Rho[tier].At
		if s.Rho[tier].Source != fleet.Default {
			weights = weight(newest)
			sum = weights * s.Rho[tier].Value
		}
		for _, v := range seen {
			w := weight(v.at)
			sum, weights, newest = sum+w*v.rho, weights+w, max(newest, v.at)
		}
		u.rho[tier] = fleet.Signal{Value: sum / weights, Source: fleet.Learned, At: newest}
	}
}

// peerFit is what a peer learned of a class.
type peerFit struct {
	writer core.Replica
	state  cost.FitState
}

// hearFit takes what a peer learned of a class: the state that rests on most
// samples is kept. It needs r.mu.
func (p *peering) hearFit(h *heardValue) {
	if h.gone {
		return // what was learned stays true
	}
	fits, err := DecodeFits(h.value)
	if len(h.value) > maxFitBytes || err != nil || len(fits) != 1 {
		p.bad.Add(1)
		return
	}
	// order-free: there is one
	for key, state := range fits {
		old, known := p.fits[key]
		switch {
		case !known && len(p.fits) >= maxFits:
			p.refused.Add(1)
		case !known || h.writer == old.writer || cmp.Or(cmp.Compare(state.Samples, old.state.Samples), cmp.Compare(h.writer.Name, old.writer.Name)) > 0:
			p.fits[key] = peerFit{h.writer, state}
		}
	}
}

// adopt has a class that has no samples begin where the peers are. It needs r.mu.
func (p *peering) adopt(c *class) {
	if p == nil || c.fit.Samples() > 0 {
		return
	}
	if best, ok := p.fits[c.key]; ok {
		// A state that can't be restored is as good as none.
		if c.fit.Restore(c.base, best.state) == nil {
			p.saidSamples[c.key] = c.fit.Samples()
		}
	}
}
