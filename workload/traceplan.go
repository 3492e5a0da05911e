package workload

import (
	"slices"
	"time"
)

// TraceOptions says how a trace becomes a [Plan]. The zero value replays the
// whole trace in open loop at its own speed.
type TraceOptions struct {
	Name string
	// Seed spreads arrivals within the trace's ticks (see [Jitter]).
	Seed uint64
	// Speed compresses time: 2 sends everything in half the time. 0 means 1.
	Speed float64
	// Hold makes a turn wait until the turn before it ended (see [Parents]).
	// Without it the trace is pure open loop.
	Hold bool
	// Limit > 0 takes only that many requests, the first ones.
	Limit int
}

// TracePlan makes a plan of a trace's requests, which must be ordered by
// arrival.
//
// With Hold, turn k+1 is sent at its own time or at the end of turn k,
// whichever is later: the trace's think time is kept as long as the fleet is
// no slower than the recorded one. Where the trace gives a delay, which says
// more, the turn moreover waits that long (divided by the speed) after the end.
//
// Spans are the trace's hash ids, 512 tokens each, the last one less. A trace
// does not tell the answers' content: each gets an id of its own that no
// prompt contains. A router can tell sessions only where the trace names them.
func TracePlan(reqs []Request, opt TraceOptions) Plan {
	if opt.Limit > 0 {
		reqs = reqs[:min(opt.Limit, len(reqs))]
	}
	speed := opt.Speed
	if speed <= 0 {
		speed = 1
	}
	reqs = Jitter(reqs, opt.Seed)
	parents := Parents(reqs)
	blocks := 0
	for i := range reqs {
		blocks += len(reqs[i].HashIDs)
	}
	spans := make([]Span, 0, blocks)
	jobs := make([]Job, len(reqs))
	var waits waitList
	sessions := 0
	for i := range reqs {
		r := &reqs[i]
		from := len(spans)
		spans = appendSpans(spans, r)
		j := Job{
			At:     faster(r.At, speed),
			Prompt: spans[from:len(spans):len(spans)],
			Answer: Span{contentID(opt.Seed, traceAnswer, i, 0), r.OutputTokens},
			Hidden: r.Session == "",
			Tenant: r.Tenant, Tool: r.Tool,
		}
		if p := parents[i]; p >= 0 {
			j.Session, j.Turn = jobs[p].Session, jobs[p].Turn+1
			if opt.Hold {
				j.Waits, j.After = waits.of(p), faster(r.Delay, speed)
			}
		} else {
			j.Session = sessions
			sessions++
		}
		jobs[i] = j
	}
	return Plan{Name: opt.Name, Jobs: jobs}
}

func faster(d time.Duration, speed float64) time.Duration {
	return time.Duration(float64(d) / speed)
}

// appendSpans appends r's prompt.
func appendSpans(dst []Span, r *Request) []Span {
	left := r.InputTokens
	for _, id := range r.HashIDs {
		n := min(left, BlockTokens)
		dst = append(dst, Span{id, n})
		left -= n
	}
	return dst
}

// Set is a half of the data: parameters are tuned on A, results reported on B.
type Set string

// The sets.
const (
	A Set = "A"
	B Set = "B"
)

// Half returns the first (A) or second (B) half of a trace ordered by arrival,
// cut at the middle of its time, arrivals counted from the half's own start.
//
// Both halves start cold. A prompt of B that in the trace hits blocks of A
// computes them anew, and a conversation that began in A begins in B with its
// next turn, as a first turn. So B's share of reusable tokens is a little
// lower than that of the whole trace's second half; all routers meet the same.
func Half(reqs []Request, set Set) []Request {
	if len(reqs) == 0 {
		return nil
	}
	middle := reqs[len(reqs)-1].At / 2
	cut, _ := slices.BinarySearchFunc(reqs, middle, func(r Request, at time.Duration) int {
		if r.At <= at {
			return -1
		}
		return 1
	})
	if set == A {
		return slices.Clone(reqs[:cut])
	}
	half := slices.Clone(reqs[cut:])
	for i := range half {
		half[i].At -= middle
	}
	return half
}
