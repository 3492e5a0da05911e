package load

import (
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// meter gathers what one target's requests came to, within one run. It is safe
// for concurrent use.
type meter struct {
	speed float64 // modelled time = wall time × speed

	mu               sync.Mutex
	requests, errors int
	kinds            map[string]int
	firstError       error
	ttft, tpot, e2e  timing
	usages           int
	prompt, cached   int64
	output           int64
	cachedTold       bool
	workers          map[string]*busySpan
	speedupTold      bool
}

// maxWorkers bounds how many workers behind one target are told apart.
const maxWorkers = 4096

func newMeter(speed float64) *meter {
	return &meter{
		speed: speed, kinds: make(map[string]int), workers: make(map[string]*busySpan),
		ttft: newTiming(), tpot: newTiming(), e2e: newTiming(),
	}
}

func (m *meter) add(r *result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
	m.emulated(&r.Emulated)
	if r.Kind != "" {
		m.errors++
		m.kinds[r.Kind]++
		if m.firstError == nil {
			m.firstError = r.Err
		}
		return
	}
	m.ttft.add(m.modelled(r.First.Sub(r.Sent)))
	m.e2e.add(m.modelled(r.End.Sub(r.Sent)))
	if r.Tokens > 1 {
		m.tpot.add(m.modelled(r.Last.Sub(r.First)) / float64(r.Tokens-1))
	}
	m.output += int64(r.Tokens)
	if r.Usage.Known {
		m.usages++
		m.prompt += int64(r.Usage.PromptTokens)
		m.cached += int64(r.Usage.CachedTokens)
		m.cachedTold = m.cachedTold || r.Usage.CachedKnown
	}
}

func (m *meter) modelled(wall time.Duration) (micros float64) {
	return float64(wall) / 1e3 * m.speed
}

func (m *meter) emulated(e *emulated) {
	m.speedupTold = m.speedupTold || e.Speedup > 0
	if !e.HasBusy || e.Worker == "" {
		return
	}
	w := m.workers[e.Worker]
	if w == nil && len(m.workers) == maxWorkers {
		return
	}
	if w == nil {
		w = &busySpan{from: *e, to: *e}
		m.workers[e.Worker] = w
	}
	if e.ClockMicros < w.from.ClockMicros {
		w.from = *e
	}
	if e.ClockMicros > w.to.ClockMicros {
		w.to = *e
	}
}

// busySpan holds the earliest and the latest that one worker told of itself.
type busySpan struct{ from, to emulated }

// utilisation is the mean over workers of the share of time they were busy
// between their first and last response; unknown where none told.
func (m *meter) utilisation() Figure {
	var sum float64
	n := 0
	for _, w := range m.workers {
		clock, busy := w.to.ClockMicros-w.from.ClockMicros, w.to.BusyMicros-w.from.BusyMicros
		if clock <= 0 || busy < 0 { // one response only, or restarted in between
			continue
		}
		sum += min(busy/clock, 1)
		n++
	}
	if n == 0 {
		return unknown
	}
	return Figure(sum / float64(n))
}

// measures sums m up.
func (m *meter) measures() Measures {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Measures{
		Requests: m.requests, Errors: m.errors,
		TTFTMeanMillis: m.ttft.meanMillis(), TTFTP50Millis: m.ttft.millisAt(50),
		TTFTP90Millis: m.ttft.millisAt(90), TTFTP99Millis: m.ttft.millisAt(99),
		TPOTMeanMillis: m.tpot.meanMillis(), TPOTP99Millis: m.tpot.millisAt(99),
		E2EMeanMillis: m.e2e.meanMillis(), E2EP99Millis: m.e2e.millisAt(99),
		HitShare: unknown, Utilisation: m.utilisation(), Workers: len(m.workers),
		PromptTokens: m.prompt, CachedTokens: m.cached, OutputTokens: m.output,
	}
	if len(m.kinds) > 0 {
		out.ErrorKinds = m.kinds
	}
	if m.prompt > 0 {
		out.HitShare = Figure(float64(m.cached) / float64(m.prompt))
	}
	return out
}

// notes tells what a reader of the measures should know.
func (m *meter) notes(target string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var notes []string
	if m.errors > 0 && m.firstError != nil {
		notes = append(notes, target+": first error: "+m.firstError.Error())
	}
	good := m.requests - m.errors
	switch {
	case good > 0 && m.usages == 0:
		notes = append(notes, target+": no answer told its usage, so hit_share is unknown and tokens are counted by events")
	case good > 0 && !m.cachedTold:
		notes = append(notes, target+": no answer told cached tokens; hit_share counts them as none (vLLM tells with --enable-prompt-tokens-details)")
	}
	if good > 0 && !m.speedupTold && m.speed != 1 {
		notes = append(notes, target+": no answer carried x-emulator-speedup; times are wall time × speed, which is wrong for real workers: replay those with speed 1")
	}
	return notes
}

// timing holds times in microseconds: an exact mean, and percentiles to three
// digits.
type timing struct {
	hist *hdrhistogram.Histogram
	sum  float64
	n    int
}

// longestMicros is where percentiles end: ten hours.
const longestMicros = 36_000_000_000

func newTiming() timing { return timing{hist: hdrhistogram.New(1, longestMicros, 3)} }

func (t *timing) add(micros float64) {
	t.sum += micros
	t.n++
	// The value is clamped into the histogram's range, so this cannot fail.
	_ = t.hist.RecordValue(int64(min(max(micros, 1), longestMicros)))
}

func (t *timing) meanMillis() Figure {
	if t.n == 0 {
		return unknown
	}
	return Figure(t.sum / float64(t.n) / 1e3)
}

func (t *timing) millisAt(percentile float64) Figure {
	if t.n == 0 {
		return unknown
	}
	return Figure(float64(t.hist.ValueAtQuantile(percentile)) / 1e3)
}

// unknown is the figure of what was not measured.
var unknown = Figure(math.NaN())
