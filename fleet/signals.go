package fleet

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

// Signal is one number that a decision rests on, with where it comes from.
type Signal struct {
	Value  float64       `json:"value"`
	Source Source        `json:"source"`
	At     clock.Instant `json:"at_nanos"` // when it was read, by this replica's clock; 0 for defaults and configuration
}

// Age returns how old the number is at an instant; 0 for what does not age.
func (s Signal) Age(now clock.Instant) time.Duration {
	if s.Source != Scraped && s.Source != Learned {
		return 0
	}
	return now.Sub(s.At)
}

// Source says where a signal comes from.
type Source uint8

// The sources, least trusted first.
const (
	Default    Source = iota // nobody said; the documented assumption
	Configured               // the worker's preset or specification
	Learned                  // derived from what was observed
	Scraped                  // the worker said so
)

var sourceNames = [...]string{"default", "configured", "learned", "scraped"}

// String returns the source's name as explanations show it.
func (s Source) String() string { return sourceNames[s] }

// MarshalText makes the source its name in JSON.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Source) UnmarshalText(text []byte) error {
	i := slices.Index(sourceNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown source %q", text)
	}
	*s = Source(i)
	return nil
}

// Signals is what is known of a member's load and limits beyond its bookings.
// The zero value is what a worker that says nothing gets.
type Signals struct {
	// CapacityTokens is its KV pool in HBM; 0 by default, which sets no limit.
	CapacityTokens Signal `json:"capacity_tokens"`
	// MaxSeqs is how many sequences it runs at most.
	MaxSeqs Signal `json:"max_seqs"`
	// KVUsage is the share of its KV pool in use, 0 to 1.
	KVUsage Signal `json:"kv_usage"`
	// Running and Waiting are its requests, ours included.
	Running Signal `json:"running"`
	Waiting Signal `json:"waiting"`
	// ForeignRunning and ForeignWaiting are those that aren't ours: what other
	// routers or clients sent there.
	ForeignRunning Signal `json:"foreign_running"`
	ForeignWaiting Signal `json:"foreign_waiting"`
	// WaitingTokens is the prefill work of its waiting requests, ours
	// included, where the engine tells it.
	WaitingTokens Signal `json:"waiting_tokens"`
	// Rho is each tier's link utilisation, 0 to 1, higher is more congested, and
	// BytesPerMicro the best bandwidth seen on it.
	Rho           [kv.NumTiers]Signal `json:"rho"` // by tier
	BytesPerMicro [kv.NumTiers]Signal `json:"bytes_per_micro"`
	// Gate is how far each tier is trusted, 0 to 1, where its Rho is known: see
	// cost.Gate.
	Gate [kv.NumTiers]Signal `json:"gate"`
	// KVBytes is the size of a token's KV.
	KVBytes Signal `json:"kv_bytes"`
	// Steps is what the engine's own counters say of its steps.
	Steps Steps `json:"steps"`
	// Lookups is what it counted of its prefix cache.
	Lookups Lookups `json:"lookups"`
}

// Lookups is what a worker looked up in its prefix cache since it started,
// tokens, on whatever tier it found them. The zero value says nothing.
type Lookups struct {
	QueriedTokens float64       `json:"queried_tokens"`
	FoundTokens   float64       `json:"found_tokens"`
	At            clock.Instant `json:"at_nanos"`
}

// defaultMaxSeqs is assumed of a worker that does not say how many sequences it
// runs at most: vLLM's default.
const defaultMaxSeqs = 256

// meter turns one member's telemetry into its signals.
type meter struct {
	foreign foreign
	links   [kv.NumTiers]link
	gates   [kv.NumTiers]cost.Gate
	steps   stepCounters
	maxSeqs float64 // learned upward
}

// observe takes one scrape.
func (x *meter) observe(now clock.Instant, t engine.RankTelemetry, m *Member) Signals {
	scraped := func(v engine.Value) Signal {
		if !v.Known {
			return Signal{}
		}
		return Signal{v.Value, Scraped, now}
	}
	s := Signals{
		CapacityTokens: scraped(t.HBMTokens), MaxSeqs: scraped(t.MaxSeqs), KVUsage: scraped(t.KVUsage),
		Running: scraped(t.Running), Waiting: scraped(t.Waiting), WaitingTokens: scraped(t.WaitingTokens),
	}
	if s.CapacityTokens.Source == Default && m.Class.CapacityTokens > 0 {
		s.CapacityTokens = Signal{Value: m.Class.CapacityTokens, Source: Configured}
	}
	if s.MaxSeqs.Source == Default {
		x.maxSeqs = max(x.maxSeqs, defaultMaxSeqs)
		if t.Waiting.Value > 0 {
			x.maxSeqs = max(x.maxSeqs, t.Running.Value)
		}
		s.MaxSeqs = Signal{Value: x.maxSeqs}
		if x.maxSeqs > defaultMaxSeqs {
			s.MaxSeqs = Signal{x.maxSeqs, Learned, now}
		}
	}
	if t.Running.Known && t.Waiting.Known {
		alien := x.foreign.observe(t.Running.Value+t.Waiting.Value, float64(m.Ledger.Booked()+m.PeerShare(now).InFlight))
		waiting := min(alien, t.Waiting.Value)
		s.ForeignWaiting, s.ForeignRunning = Signal{waiting, Learned, now}, Signal{alien - waiting, Learned, now}
	}
	s.Steps = x.steps.observe(now, &t)
	if t.PrefixQueriesTokens.Known && t.PrefixHitsTokens.Known {
		s.Lookups = Lookups{t.PrefixQueriesTokens.Value, t.PrefixHitsTokens.Value + t.ExternalHitsTokens.Value, now}
	}
	for tier := kv.CPU; tier < kv.NumTiers; tier++ {
		c := t.Tiers[tier]
		if !c.LoadBytes.Known {
			continue
		}
		l := &x.links[tier]
		s.Rho[tier] = Signal{l.observe(now, c.LoadBytes.Value, c.LoadSeconds.Value, c.LoadSeconds.Known), Learned, now}
		x.gates[tier].Observe(s.Rho[tier].Value)
		s.Gate[tier] = Signal{x.gates[tier].Open(), Learned, now}
		if l.bytesPerMicro > 0 && c.LoadSeconds.Known {
			s.BytesPerMicro[tier] = Signal{l.bytesPerMicro, Learned, now}
		}
	}
	if bytes := t.Tiers[kv.CPU].LoadBytes; bytes.Value > 0 && t.ExternalHitsTokens.Value > 0 {
		s.KVBytes = Signal{bytes.Value / t.ExternalHitsTokens.Value, Learned, now}
	}
	return s
}

// foreignWindow is over how many scrapes a foreign request must show: a gauge
// that lags behind our own bookings by a scrape or two is no foreign load.
const foreignWindow = 3

// foreign finds the load that isn't ours: what remains of the worker's own
// count after ours is taken off, in every one of the last scrapes.
type foreign struct {
	last [foreignWindow]float64
	n    int
}

// observe records one scrape beside what we had in flight then.
func (f *foreign) observe(scraped, own float64) float64 {
	f.last[f.n%foreignWindow] = max(0, scraped-own)
	f.n++
	if f.n < foreignWindow {
		return 0
	}
	least := math.Inf(1)
	for _, v := range f.last {
		least = min(least, v)
	}
	return least
}

// linkHalfLife is how fast the average utilisation of a link forgets.
const linkHalfLife = 5 * time.Second

// link turns a link's counters of bytes and busy seconds into its utilisation
// and bandwidth.
type link struct {
	bytes, seconds float64
	at             clock.Instant
	seen           bool

	rho           float64
	bytesPerMicro float64 // best seen while busy, fading by 1 % a minute
}

// observe takes the counters of one scrape and returns the average utilisation.
// Counters that went back are those of a new process. secondsKnown is false
// for engines that count bytes only: then what is moved is compared with the
// best bandwidth seen.
func (l *link) observe(now clock.Instant, bytes, seconds float64, secondsKnown bool) float64 {
	elapsed := now.Sub(l.at)
	moved, busy := bytes-l.bytes, seconds-l.seconds
	first := !l.seen || moved < 0 || busy < 0 || elapsed <= 0
	l.bytes, l.seconds, l.at, l.seen = bytes, seconds, now, true
	if first {
		return l.rho
	}
	l.bytesPerMicro *= math.Pow(0.99, elapsed.Minutes())
	rate := moved / float64(elapsed.Microseconds())
	share := 0.0
	if secondsKnown {
		share = min(1, busy/elapsed.Seconds())
		if busy > 0 {
			l.bytesPerMicro = max(l.bytesPerMicro, moved/(busy*1e6))
		}
	} else {
		l.bytesPerMicro = max(l.bytesPerMicro, rate)
	}
	if l.bytesPerMicro > 0 {
		share = max(share, min(1, rate/l.bytesPerMicro))
	}
	if !secondsKnown && share == 1 {
		share = l.rho // a new record says nothing of how much more would fit
	}
	gain := 1 - math.Exp2(-float64(elapsed)/float64(linkHalfLife))
	l.rho += gain * (share - l.rho)
	return l.rho
}
