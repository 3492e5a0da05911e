package route

import (
	"sort"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
)

// workerAudit is how well predictions for one worker did.
type workerAudit struct {
	causes [numCauses]struct {
		requests    uint64
		shortTokens uint64 // where any were missing
	}
	ttft   tally // actual by predicted
	cached tally // (actual − predicted) tokens by the prompt's
	window window
	// What windows found, tokens.
	windowPredicted, windowActual float64
}

// ttftBounds and cachedBounds are the upper bounds of the buckets.
var (
	ttftBounds   = []float64{0.25, 0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2, 4, 10}
	cachedBounds = []float64{-0.75, -0.5, -0.25, -0.1, -0.02, 0.02, 0.1, 0.25, 0.5, 0.75}
)

func newWorkerAudit() *workerAudit {
	return &workerAudit{ttft: newTally(ttftBounds), cached: newTally(cachedBounds)}
}

func (w *workerAudit) count(c Cause, short int) {
	w.causes[c].requests++
	w.causes[c].shortTokens += uint64(max(0, short))
}

// tally is a histogram.
type tally struct {
	bounds []float64
	counts []uint64 // not cumulative; the last is of what is above all bounds
	sum    float64
	n      uint64
}

func newTally(bounds []float64) tally {
	return tally{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (t *tally) observe(x float64) {
	t.counts[sort.SearchFloat64s(t.bounds, x)]++
	t.sum += x
	t.n++
}

// buckets returns the cumulative counts by upper bound.
func (t *tally) buckets() map[float64]uint64 {
	out := make(map[float64]uint64, len(t.bounds))
	sum := uint64(0)
	for i, bound := range t.bounds {
		sum += t.counts[i]
		out[bound] = sum
	}
	return out
}

const (
	// windowTime is how long a window is at least, so that the requests on its
	// edges weigh little, and windowRequests how many it has.
	windowTime     = 30 * time.Second
	windowRequests = 16
)

// window compares what was predicted of many requests with what the worker
// counted, where responses don't tell their cached tokens.
type window struct {
	began     fleet.Lookups
	predicted float64 // tokens, of ours that ended in it
	prompt    float64
	requests  int
	blind     int  // of them, those whose response did not tell
	unsure    bool // some prompts were not known token by token
}

// ended counts a request of ours.
func (w *window) ended(predicted, prompt int, blind, exact bool) {
	w.predicted += float64(predicted)
	w.prompt += float64(prompt)
	w.requests++
	if blind {
		w.blind++
	}
	w.unsure = w.unsure || !exact
}

// close ends the window if it is long enough, by what the worker counted until
// now: found is what it found of our prompts, where others' prompts are taken
// to hit as often as ours. ok is false where nothing can be said.
func (w *window) close(now fleet.Lookups) (found float64, ok bool) {
	queried := now.QueriedTokens - w.began.QueriedTokens
	hits := now.FoundTokens - w.began.FoundTokens
	switch {
	case now.At == 0 || now.At == w.began.At:
		return 0, false
	case w.began.At == 0 || queried < 0 || hits < 0: // the first, or a new process
		*w = window{began: now}
		return 0, false
	case now.At.Sub(w.began.At) < windowTime || w.requests < windowRequests:
		return 0, false
	case 2*w.blind < w.requests || queried == 0: // the responses tell it better
		*w = window{began: now}
		return 0, false
	}
	return hits * min(1, w.prompt/queried), true
}

// auditWindow takes a request that ended well into its worker's window.
func (r *Router) auditWindow(now clock.Instant, d *Decision, u Usage) {
	a := r.auditOf(d.Target)
	promptTokens := int(d.booking.PromptTokens)
	if u.Known {
		promptTokens = u.PromptTokens
	}
	w := &a.window
	lookups := d.member.Signals().Lookups
	if found, ok := w.close(lookups); ok {
		a.windowPredicted += w.predicted
		a.windowActual += found
		if !w.unsure && w.predicted > 0 && d.member.FeedState(now).Healthy {
			d.member.Kept(now, found/w.predicted, w.requests)
		}
		*w = window{began: lookups}
	}
	w.ended(d.predicted.tokens, promptTokens, !u.Known || u.CachedTokens < 0, d.query.TextBytes == 0)
}
