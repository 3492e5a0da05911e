package workload

import (
	"math"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// BurstOptions says what [Bursts] adds to a plan.
type BurstOptions struct {
	Seed uint64
	// Size is how many requests arrive at the same moment, Every the mean
	// (exponential) time between bursts. The first comes after one such time,
	// none after the background's last arrival; none at all if Every is 0.
	Size  int
	Every time.Duration
	// PrefixTokens is what all requests of a burst begin with, and nothing else
	// does. TailTokens and OutputTokens are medians of log-normal lengths.
	PrefixTokens, TailTokens, OutputTokens int
}

// DefaultBursts are 28 requests at once with a fresh common prefix of 6,000
// tokens, every 15 s: what a job that fans out over one document sends. A router
// that does not see its own requests under way sends all to workers that have
// nothing yet, or all to the one that will have it first.
func DefaultBursts(seed uint64) BurstOptions {
	return BurstOptions{Seed: seed, Size: 28, Every: 15 * time.Second, PrefixTokens: 6000, TailTokens: 200, OutputTokens: 150}
}

// Bursts returns a plan of the background and bursts in between. Sessions of
// bursts are numbered after the background's, one a request, and are Hidden.
// The background must be an open-loop plan.
func Bursts(background Plan, o BurstOptions) Plan {
	jobs := slices.Clone(background.Jobs)
	sessions, last := 0, time.Duration(0)
	for i := range jobs {
		sessions = max(sessions, jobs[i].Session+1)
		last = max(last, jobs[i].At)
	}
	rng := clock.Rand(o.Seed, "workload/bursts")
	gap := func() time.Duration { return max(1, time.Duration(rng.ExpFloat64()*float64(o.Every))) }
	for n, at := 0, gap(); o.Every > 0 && at <= last; n, at = n+1, at+gap() {
		prefix := Span{contentID(o.Seed, burstContent, n, 0), o.PrefixTokens}
		for range o.Size {
			jobs = append(jobs, Job{
				Session: sessions, At: at, Hidden: true,
				Prompt: []Span{prefix, {contentID(o.Seed, burstContent, sessions, 1), length(rng, o.TailTokens)}},
				Answer: Span{contentID(o.Seed, burstContent, sessions, 2), length(rng, o.OutputTokens)},
			})
			sessions++
		}
	}
	byTime(jobs)
	return Plan{Name: background.Name + "-bursts", Jobs: jobs}
}

// Diurnal returns a plan whose rate of arrivals is that of p times
// 1 + depth·sin(2πt/period): a day, compressed to a period of some minutes.
// depth is from 0 to less than 1. Jobs that wait keep their distance in time to
// what they wait for, so that think times stay what they were. p must be an
// open-loop plan.
func Diurnal(p Plan, period time.Duration, depth float64) Plan {
	jobs := slices.Clone(p.Jobs)
	for i := range jobs {
		j := &jobs[i]
		if len(j.Waits) == 0 {
			j.At = whenExpected(j.At, period, depth)
			continue
		}
		first := j.Waits[0]
		j.At += jobs[first].At - p.Jobs[first].At
	}
	byTime(jobs)
	return Plan{Name: p.Name + "-diurnal", Jobs: jobs}
}

// whenExpected returns the time t by which the modulated rate has brought as
// many arrivals as a constant rate has by at: the root of
// t + depth·period/2π·(1 − cos(2πt/period)) = at.
func whenExpected(at, period time.Duration, depth float64) time.Duration {
	swing := depth * float64(period) / (2 * math.Pi)
	low, high := math.Max(0, float64(at)-2*swing), float64(at)
	for high-low > 0.25 { // a quarter of a nanosecond, or what a float64 can tell
		t := (low + high) / 2
		if t == low || t == high {
			break
		}
		if t+swing*(1-math.Cos(2*math.Pi*t/float64(period))) < float64(at) {
			low = t
		} else {
			high = t
		}
	}
	return time.Duration(math.Round(high))
}

// Hide returns a plan in which a share of the sessions name no session to the
// router (see [Job.Hidden]), chosen by seed.
func Hide(p Plan, share float64, seed uint64) Plan {
	p.Jobs = slices.Clone(p.Jobs)
	for i := range p.Jobs {
		j := &p.Jobs[i]
		u := float64(contentID(seed, 0, j.Session, 0)>>11) / (1 << 53)
		j.Hidden = j.Hidden || u < share
	}
	return p
}
