package fleet

import (
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// Signal is one number that a decision rests on, with where it comes from.
type Signal struct {
	Value  float64
	Source Source
	At     clock.Instant // when it was read; 0 for defaults and configuration
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

// Signals is what is known of a member's load and limits beyond its bookings.
// The zero value is what a worker that says nothing gets.
type Signals struct {
	// CapacityTokens is its KV pool in HBM; 0 by default, which sets no limit.
	CapacityTokens Signal
	// MaxSeqs is how many sequences it runs at most.
	MaxSeqs Signal
	// KVUsage is the share of its KV pool in use, 0 to 1.
	KVUsage Signal
	// Running and Waiting are its requests, ours included.
	Running, Waiting Signal
	// ForeignRunning and ForeignWaiting are those that aren't ours: what other
	// routers or clients sent there.
	ForeignRunning, ForeignWaiting Signal
	// WaitingTokens is the prefill work of its waiting requests, ours
	// included, where the engine tells it.
	WaitingTokens Signal
	// Rho is each tier's link utilisation, 0 to 1, higher is more congested.
	Rho [kv.NumTiers]Signal
	// KVBytes is the size of a token's KV.
	KVBytes Signal
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
