package route

import (
	"fmt"
	"math"

	"github.com/rhizome-router/rhizome/clock"
)

// Margins make the band within which costs count as equal: differences smaller
// than what the model can know. The widest of them counts.
type Margins struct {
	// Steps is how many decode steps of the cheapest worker wide the band is at
	// least: 0.1 are 0.6 ms on a small model's, 2 ms on a large. Default 0.
	Steps float64 `yaml:"steps" config:"zero"`
	// Share is its width as a share of the least cost.
	Share float64 `yaml:"share" config:"zero"`
	// Peers is how much counts of the work that other replicas send a worker
	// before this one hears of it: their arrivals a second × the delay of what
	// they tell × the mean work of a request ÷ the workers.
	Peers float64 `yaml:"peers" config:"zero"`
}

// DefaultMargins are what the product ships with.
func DefaultMargins() Margins { return Margins{Steps: 0, Share: 0.003, Peers: 1} }

// choice is which of r.cands is chosen, and why.
type choice struct {
	index int
	why   string
	tie   *NearTie // nil under policies that don't go by cost; valid until the next choice
	lease *LeaseState
}

// cheapest picks the lowest cost. Within the near-tie band the session's last
// worker wins, so that noise moves nobody; else the one that has most of the
// prompt, since work saved is work saved; else a uniform draw. At a temperature
// the costs themselves are drawn by, and the band decides nothing.
func (r *Router) cheapest(now clock.Instant, session string) choice {
	least := 0
	for i := range r.cands {
		if r.cands[i].total < r.cands[least].total {
			least = i
		}
	}
	width := r.band(now, &r.cands[least])
	band := r.cands[least].total + width
	tie := &r.tie
	*tie = NearTie{BandMicros: width}
	for i := range r.cands {
		c := &r.cands[i]
		if c.inBand = c.total <= band; c.inBand {
			tie.Inside++
		}
	}
	if r.cfg.TemperatureMicros > 0 {
		tie.Rule = ByTemperature
		return choice{index: r.draw(r.cands[least].total), why: "drawn by cost", tie: tie}
	}
	return r.amongEqual(session, least, tie)
}

// band is how wide the near-tie band over the cheapest candidate is, in µs.
func (r *Router) band(now clock.Instant, least *candidate) float64 {
	m := &r.cfg.NearTie
	width := max(m.Steps*least.class.StepMicros, m.Share*least.total)
	if r.peers.replicas > 0 {
		own := r.traffic.perWorker(now, r.serving)
		width = max(width, m.Peers*float64(r.peers.replicas)*own.Busy*float64(r.peers.delay.Microseconds()))
	}
	return width
}

// amongEqual decides among the candidates in the band.
func (r *Router) amongEqual(session string, least int, tie *NearTie) choice {
	last, known := r.sessions.get(session)
	equal, pick := 0, least
	for i := range r.cands {
		c := &r.cands[i]
		if !c.inBand {
			continue
		}
		if known && c.member.Target == last.target {
			tie.Rule = BySession
			return choice{index: i, why: "near tie, the session's last worker", tie: tie}
		}
		switch most := r.cands[pick].hit.Tokens(); {
		case c.hit.Tokens() > most:
			equal, pick = 1, i
		case c.hit.Tokens() == most:
			if equal++; r.rand.IntN(equal) == 0 {
				pick = i
			}
		}
	}
	switch {
	case tie.Inside == 1:
		tie.Rule = ByCost
		return choice{index: pick, why: "lowest cost", tie: tie}
	case equal == 1:
		tie.Rule = ByHit
	default:
		tie.Rule = ByDraw
	}
	return choice{index: pick, why: r.nearTie(tie.Inside), tie: tie}
}

// nearTie says that so many were equal.
func (r *Router) nearTie(n int) string {
	for i := len(r.ties); i <= n; i++ {
		r.ties = append(r.ties, fmt.Sprintf("near tie of %d", i))
	}
	return r.ties[n]
}

// draw picks a candidate with a probability in proportion to
// e^(−(cost − least)/T).
func (r *Router) draw(least float64) int {
	weight := func(i int) float64 { return math.Exp((least - r.cands[i].total) / r.cfg.TemperatureMicros) }
	sum := 0.0
	for i := range r.cands {
		sum += weight(i)
	}
	left := r.rand.Float64() * sum
	for i := range r.cands {
		if left -= weight(i); left < 0 {
			return i
		}
	}
	return len(r.cands) - 1
}
