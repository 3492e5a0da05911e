package sim

import (
	"math"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/workload"
)

// windowMicros is the window of load figures and of the series over time.
const windowMicros = 10e6

// sample is what one request met.
type sample struct {
	arrived, ttft, e2e      float64 // µs; NaN where the answer did not come
	prompt, output          int
	hbm, tier               int
	predicted               int
	followup, failed, ended bool
}

func (s *sample) tpot() float64 {
	if s.output < 2 {
		return 0
	}
	return (s.e2e - s.ttft) / float64(s.output-1)
}

// record is what one run measured.
type record struct {
	samples       []sample
	busy          [][]float64 // by window, by worker: µs
	decisions     int
	decisionNanos float64
	moved         float64
	preemptions   float64
	terms         termSums
}

func (r *record) arrived(i int, j *workload.Job, prompt int, now float64) {
	r.samples[i] = sample{arrived: now, prompt: prompt, followup: j.Turn > 0, ttft: math.NaN(), e2e: math.NaN()}
}

func (r *record) decided(took time.Duration) {
	r.decisions++
	r.decisionNanos += float64(took)
}

func (r *record) ended(i int, f *flight, now float64, failed bool) {
	s := &r.samples[i]
	s.ended, s.failed = true, failed
	if failed {
		return
	}
	s.ttft, s.e2e = f.first-f.arrived, now-f.arrived
	s.output, s.hbm, s.tier, s.predicted = f.job.Answer.Tokens, f.hbm, f.tier, f.choice.CachedTokens
}

// count adds what an engine did in its life, at the life's end.
func (r *record) count(w *model.Worker) {
	s := w.Stats()
	r.preemptions += float64(s.Preemptions)
	for _, l := range s.Lower {
		r.moved += float64(l.LoadedBytes)
	}
}

// good reports whether a request met both objectives.
func (s *sample) good(g Goals) bool {
	return !s.failed && s.ttft < micros(g.TTFT) && s.tpot() < micros(g.TPOT)
}

// row sums up one run. The figures are in seconds and shares.
func (r *record) row(g Goals) Row {
	var ttft, tpot, e2e []float64
	var row Row
	var good, prompt, hbm, tier, follow, followCached, predicted, cached, off float64
	last := 0.0
	for i := range r.samples {
		s := &r.samples[i]
		row.Requests++
		last = max(last, s.arrived)
		if s.failed {
			row.Failed++
			continue
		}
		last = max(last, s.arrived+s.e2e)
		ttft, e2e = append(ttft, s.ttft/1e6), append(e2e, s.e2e/1e6)
		if s.output > 1 {
			tpot = append(tpot, s.tpot()/1e6)
		}
		if s.good(g) {
			good++
		}
		prompt, hbm, tier = prompt+float64(s.prompt), hbm+float64(s.hbm), tier+float64(s.tier)
		if s.followup {
			follow, followCached = follow+float64(s.prompt), followCached+float64(s.hbm+s.tier)
		}
		predicted, cached = predicted+float64(s.predicted), cached+float64(s.hbm+s.tier)
		off += math.Abs(float64(s.predicted - s.hbm - s.tier))
	}
	row.TTFTMean, row.TTFTP50, row.TTFTP90, row.TTFTP99 = spread(ttft)
	row.TPOTMean, row.TPOTP50, row.TPOTP90, row.TPOTP99 = spread(tpot)
	row.E2EMean, row.E2EP50, row.E2EP90, row.E2EP99 = spread(e2e)
	row.Goodput = share(good, row.Requests)
	row.HitHBM, row.HitTier = share(hbm, prompt), share(tier, prompt)
	row.FollowupCached = share(followCached, follow)
	row.LoadCoV, row.LoadMaxMean = r.imbalance()
	row.MovedBytes, row.Preemptions = r.moved, r.preemptions
	row.MakespanSeconds = last / 1e6
	if predicted > 0 {
		row.PredictedError = share(off, cached)
	}
	return row
}

// imbalance returns the coefficient of variation over workers of the busy time
// in a window, and its maximum over its mean, each averaged over the windows in
// which anything was computed. Windows that ended after nine in ten requests
// had come are left out: in them the work runs dry, and which worker has the
// last answer to write is chance.
func (r *record) imbalance() (cov, maxMean float64) {
	n := 0.0
	for _, window := range r.busy[:r.loadedWindows()] {
		mean, m2, most := 0.0, 0.0, 0.0
		for _, b := range window {
			mean += b / float64(len(window))
			most = max(most, b)
		}
		if mean <= 0 {
			continue
		}
		for _, b := range window {
			m2 += (b - mean) * (b - mean) / float64(len(window))
		}
		cov += math.Sqrt(m2) / mean
		maxMean += most / mean
		n++
	}
	if n == 0 {
		return 0, 1
	}
	return cov / n, maxMean / n
}

// loadedWindows returns how many windows had ended when nine in ten requests
// had come; at least 1 if there is one.
func (r *record) loadedWindows() int {
	at := make([]float64, len(r.samples))
	for i := range r.samples {
		at[i] = r.samples[i].arrived
	}
	slices.Sort(at)
	loaded := 0
	if len(at) > 0 {
		loaded = int(quantile(at, 0.9) / windowMicros)
	}
	return min(len(r.busy), max(1, loaded))
}

// spread returns mean, median, 90th and 99th percentile; zeros of nothing. It
// sorts x.
func spread(x []float64) (mean, p50, p90, p99 float64) {
	if len(x) == 0 {
		return 0, 0, 0, 0
	}
	slices.Sort(x)
	for _, v := range x {
		mean += v / float64(len(x))
	}
	return mean, quantile(x, 0.5), quantile(x, 0.9), quantile(x, 0.99)
}

// quantile of sorted values, linear between them.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
