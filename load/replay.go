package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/workload"
)

const (
	promptText   = "text"
	promptTokens = "tokens"
)

// warmMargin is how far a hit share may pass the bound, which counts in blocks of
// 512 tokens, before it tells of a cache that was warm.
const warmMargin = 0.03

// Target is one base URL to play against, with its own fleet behind it.
type Target struct {
	Name string // how reports name it
	URL  string // such as http://127.0.0.1:8080, without /v1
}

// ReplayConfig says what [Replay] plays and against whom.
type ReplayConfig struct {
	// Trace is the requests, ordered by arrival; TraceName is how the report
	// names them.
	Trace     []workload.Request
	TraceName string
	// Targets get the same requests at the same pace in the same run. The first
	// one is "ours"; the others' names are the keys of Report.Against.
	Targets []Target
	// Model is asked for; empty means the first that the first target serves.
	Model string
	// Speed compresses the trace: modelled time = wall time × Speed. Emulated
	// workers must run at the same speedup, real ones need 1. 0 means 1.
	Speed float64
	// Seeds are played one after the other; each has its own arrivals (jitter)
	// and its own words, so that no seed profits from an earlier one's cache.
	// None means seed 1.
	Seeds []uint64
	// Limit > 0 plays only so many requests of the trace.
	Limit int
	// MaxOutput > 0 cuts answers to so many tokens.
	MaxOutput int
	// Hold sends a turn only when the turn before it has been answered by the
	// same target (see [workload.Parents]), and the trace's delay has passed.
	// Without it arrivals are those of the trace alone (open loop), even where
	// a user could not have read the answer yet. Hold lets a fast target
	// receive its load earlier than a slow one: publish both.
	Hold bool
	// TokenPrompts sends completions with token ids in place of chat text.
	TokenPrompts bool
	// Timeout bounds one whole answer, in wall time. 0 means 10 minutes.
	Timeout time.Duration
	// MaxInFlight bounds the unanswered requests of one target; what comes on
	// top is not sent and counts as the error "overrun". 0 means 8192.
	MaxInFlight int

	// Progress, if set, is told after each request, from many goroutines.
	Progress func(Progress)
	// Transport and Clock replace the real ones, for tests.
	Transport http.RoundTripper
	Clock     clock.Clock
}

// Progress tells how far a replay is: requests answered, over all targets and
// seeds.
type Progress struct{ Done, Total int }

// withDefaults checks cfg and fills in what was left out.
func (cfg ReplayConfig) withDefaults() (ReplayConfig, error) {
	if cfg.Speed == 0 {
		cfg.Speed = 1
	}
	if !(cfg.Speed > 0) || math.IsInf(cfg.Speed, 0) {
		return cfg, fmt.Errorf("speed is %v, want more than 0", cfg.Speed)
	}
	if len(cfg.Seeds) == 0 {
		cfg.Seeds = []uint64{1}
	}
	if cfg.Limit > 0 {
		cfg.Trace = cfg.Trace[:min(cfg.Limit, len(cfg.Trace))]
	}
	if len(cfg.Trace) == 0 {
		return cfg, errors.New("the trace is empty")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Minute
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = 8192
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	if len(cfg.Targets) == 0 {
		return cfg, errors.New("no target: give at least one base URL")
	}
	targets := make([]Target, len(cfg.Targets))
	names := make(map[string]bool)
	for i, t := range cfg.Targets {
		u, err := url.Parse(t.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return cfg, fmt.Errorf("target %s: %q is not a base URL such as http://127.0.0.1:8080", t.Name, t.URL)
		}
		if t.Name == "" || names[t.Name] {
			return cfg, fmt.Errorf("target %q (%s): names must be given and differ", t.Name, t.URL)
		}
		names[t.Name] = true
		targets[i] = Target{t.Name, strings.TrimSuffix(strings.TrimSuffix(t.URL, "/"), "/v1")}
	}
	cfg.Targets = targets
	return cfg, nil
}

// Replay plays a trace against all targets and compares them. It fails when the
// configuration is wrong, when ctx ends, and when an emulated worker runs at
// another speed than the replay; failed requests are no failure of the replay,
// the report counts them.
func Replay(ctx context.Context, cfg ReplayConfig) (*Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	c := newClient(cfg.Transport, cfg.Clock, cfg.Timeout)
	defer c.Close()
	if cfg.Model == "" {
		if cfg.Model, err = c.firstModel(ctx, cfg.Targets[0].URL); err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
	}
	p := &player{cfg: cfg, client: c}
	if p.format, err = newFormat(cfg.Model); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if cfg.Hold {
		p.parents = workload.Parents(cfg.Trace)
	}
	p.bound = Figure(workload.InfiniteCacheShare(cfg.Trace).Tokens)
	report := &Report{
		Trace: cfg.TraceName, Model: cfg.Model, Speed: cfg.Speed, Seeds: cfg.Seeds, MaxOutput: cfg.MaxOutput, Hold: cfg.Hold,
		Prompt:             promptText,
		InfiniteCacheShare: p.bound,
	}
	if cfg.TokenPrompts {
		report.Prompt = promptTokens
	}
	for _, seed := range cfg.Seeds {
		one, notes, err := p.play(ctx, seed)
		if err != nil {
			return nil, fmt.Errorf("replay seed %d: %w", seed, err)
		}
		report.PerSeed = append(report.PerSeed, one)
		report.addNotes(notes)
	}
	report.combine()
	return report, nil
}

func (r *Report) addNotes(notes []string) {
	for _, n := range notes {
		if !slices.Contains(r.Notes, n) {
			r.Notes = append(r.Notes, n)
		}
	}
}

// player plays the seeds of one replay.
type player struct {
	cfg     ReplayConfig
	client  *client
	format  format
	parents []int  // nil without Hold
	bound   Figure // the infinite cache's share
	done    atomic.Int64
}

// lane is one target within one seed.
type lane struct {
	target   Target
	meter    *meter
	inFlight atomic.Int64
	answered []chan struct{} // by request, closed at its end; nil without Hold
}

// play sends the whole trace with one seed and waits for the last answer.
func (p *player) play(ctx context.Context, seed uint64) (SeedReport, []string, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	lanes := make([]*lane, len(p.cfg.Targets))
	for i, t := range p.cfg.Targets {
		lanes[i] = &lane{target: t, meter: newMeter(p.cfg.Speed)}
		if p.parents != nil {
			lanes[i].answered = make([]chan struct{}, len(p.cfg.Trace))
			for k := range lanes[i].answered {
				lanes[i].answered[k] = make(chan struct{})
			}
		}
	}
	reqs := workload.Jitter(p.cfg.Trace, seed)
	var wg sync.WaitGroup
	defer wg.Wait()
	start, lagMax := p.cfg.Clock.Now(), time.Duration(0)
	phase := p.phase(reqs)
	for i := range reqs {
		b := p.build(&reqs[i], seed)
		due := start.Add(p.wall(reqs[i].At - reqs[0].At))
		if p.cfg.Clock.Sleep(ctx, due.Sub(p.cfg.Clock.Now())) != nil {
			b.release()
			break
		}
		lagMax = max(lagMax, p.cfg.Clock.Now().Sub(due))
		for k, l := range lanes {
			b.hold()
			wg.Go(func() {
				defer b.release()
				if p.cfg.Clock.Sleep(ctx, time.Duration(k)*phase) == nil {
					p.send(ctx, fail, l, i, b)
				}
			})
		}
		b.release()
	}
	wg.Wait()
	if ctx.Err() != nil {
		return SeedReport{}, nil, context.Cause(ctx)
	}
	one, notes := p.sumUp(seed, lanes, lagMax)
	return one, notes, nil
}

// maxPhase bounds phase, in wall time.
const maxPhase = 20 * time.Millisecond

// phase is how much later than the target before it a target gets each request,
// in wall time: the mean gap between requests, divided among the targets. On
// one machine, the same request would else make all routers and workers work at
// the same moment, and each would be measured waiting for the others.
func (p *player) phase(reqs []workload.Request) time.Duration {
	gap := p.wall(reqs[len(reqs)-1].At-reqs[0].At) / time.Duration(len(reqs))
	return min(maxPhase, gap/time.Duration(len(p.cfg.Targets)))
}

// build makes the body of one request, held once.
func (p *player) build(r *workload.Request, seed uint64) *body {
	b, text := p.client.bodies.get(), workload.Text{Seed: seed}
	maxTokens := max(r.OutputTokens, 1)
	if p.cfg.MaxOutput > 0 {
		maxTokens = min(maxTokens, p.cfg.MaxOutput)
	}
	if p.cfg.TokenPrompts {
		b.buf = p.format.completion(b.buf, text, r, maxTokens)
	} else {
		b.buf = p.format.chat(b.buf, text, r, maxTokens)
	}
	return b
}

// send sends request i to one target, when its turn has come, and measures it.
func (p *player) send(ctx context.Context, fail context.CancelCauseFunc, l *lane, i int, b *body) {
	if p.parents != nil {
		defer close(l.answered[i])
		if parent := p.parents[i]; parent >= 0 && !p.held(ctx, l.answered[parent], p.cfg.Trace[i].Delay) {
			return
		}
	}
	res := result{Kind: KindOverrun, Err: fmt.Errorf("%d requests in flight to %s: the target is too slow for this pace", p.cfg.MaxInFlight, l.target.URL)}
	if l.inFlight.Add(1) <= int64(p.cfg.MaxInFlight) {
		path := chatPath
		if p.cfg.TokenPrompts {
			path = completionPath
		}
		res = p.client.do(ctx, l.target.URL+path, b, nil)
	}
	l.inFlight.Add(-1)
	if e := res.Emulated; e.Speedup > 0 && math.Abs(e.Speedup/p.cfg.Speed-1) > 1e-6 {
		fail(fmt.Errorf("worker %s behind %s runs at speedup %g, the replay at speed %g: give both the same",
			e.Worker, l.target.Name, e.Speedup, p.cfg.Speed))
	}
	l.meter.add(&res)
	done := p.done.Add(1)
	if p.cfg.Progress != nil {
		p.cfg.Progress(Progress{int(done), len(p.cfg.Trace) * len(p.cfg.Targets) * len(p.cfg.Seeds)})
	}
}

// held waits for the turn before; false means the run has ended.
func (p *player) held(ctx context.Context, answered <-chan struct{}, delay time.Duration) bool {
	select {
	case <-answered:
		return delay == 0 || p.cfg.Clock.Sleep(ctx, p.wall(delay)) == nil
	case <-ctx.Done():
		return false
	}
}

func (p *player) wall(modelled time.Duration) time.Duration {
	return time.Duration(float64(modelled) / p.cfg.Speed)
}

func (p *player) sumUp(seed uint64, lanes []*lane, lagMax time.Duration) (SeedReport, []string) {
	out := SeedReport{Seed: seed, Against: make(map[string]Measures),
		SendLagMaxMillis: Figure(lagMax.Seconds() * 1e3 * p.cfg.Speed)}
	var notes []string
	for i, l := range lanes {
		m := l.meter.measures()
		if i == 0 {
			out.Ours = m
		} else {
			out.Against[l.target.Name] = m
		}
		notes = append(notes, l.meter.notes(l.target.Name)...)
		if m.HitShare > p.bound+warmMargin {
			notes = append(notes, l.target.Name+": hit_share is above infinite_cache_share: the caches knew these prompts from an earlier run; restart the workers or take other seeds")
		}
	}
	out.TTFTRatio = ttftRatios(out.Ours, out.Against)
	return out, notes
}
