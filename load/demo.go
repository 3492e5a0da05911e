package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/workload"
)

// DemoConfig says what [Demo] runs.
type DemoConfig struct {
	// Workers is how many workers to start. 0 means 4.
	Workers int
	// Duration is how long new turns are sent, in wall time. 0 means until ctx
	// ends, or 20 seconds with Once.
	Duration time.Duration
	// Once makes the demo end by itself.
	Once bool
	// Speedup is how much faster than life the workers run: modelled time =
	// wall time × Speedup. Think times shrink likewise. 0 means 1.
	Speedup float64
	// Chat is the conversations to hold. The zero value means
	// [workload.DefaultChat].
	Chat workload.Chat
	// NameSessions makes requests say which conversation they belong to, in
	// prompt_cache_key, as agents do.
	NameSessions bool
	// RestartWorkerAfter > 0 drains and restarts one worker that long after the
	// start, in wall time; RestartRouterAfter ends the router and starts another.
	RestartWorkerAfter, RestartRouterAfter time.Duration

	// StartWorkers starts n workers; see [EmulatedWorkers].
	StartWorkers func(ctx context.Context, n int) (*Workers, error)
	// StartRouter starts a router over workers given as --worker lines and
	// returns when it serves.
	StartRouter func(ctx context.Context, workers []string) (*Router, error)

	// Out gets the table and the summary; TTY says that it is a terminal, where
	// the table is redrawn in place. JSON writes nothing but the summary.
	Out  io.Writer
	TTY  bool
	JSON bool

	// Transport and Clock replace the real ones, for tests.
	Transport http.RoundTripper
	Clock     clock.Clock
}

// Workers is a fleet that was started for the demo.
type Workers struct {
	Lines []string             // one --worker line each
	Model string               // what they serve
	Stats func() []WorkerStats // in a fixed order; safe for concurrent use
	// Restart drains worker i, from 0 on, restarts it with an empty cache and
	// returns when it serves again; nil: they can't be restarted.
	Restart func(i int) error
	Close   func() error // nil: they end with their context
}

// WorkerStats is what one worker tells of itself. The counts go on over its
// restarts.
type WorkerStats struct {
	Name             string // as its x-emulator-worker header says
	Requests         int64
	Running, Waiting int
	// HitHBMTokens and HitTierTokens are prompt tokens found in HBM and in all
	// lower tiers together.
	HitHBMTokens, HitTierTokens int64
	StoredBlocks, EvictedBlocks int64   // that came into HBM, and had to go from it
	KVFill                      float64 // share of the HBM blocks that hold something, 0 to 1
}

// Router is a router that was started for the demo.
type Router struct {
	URL string // base URL of its data port
	// Replicas are the base URLs of all its replicas' data ports, among which
	// requests are spread at random; empty: there is but URL.
	Replicas []string
	Admin    string // base URL of its admin port; empty: not shown
	Stats    func() RouterStats
	Close    func() error // nil: it ends with its context
}

// RouterStats is what the router counted. The token counts cover the same
// requests: those whose answers told cached tokens.
type RouterStats struct {
	Requests, Failed              int64
	CachedPredicted, CachedActual int64 // tokens
	CachedAbsError                int64 // |predicted − actual|, summed over the requests
}

// DemoSummary is what a demo came to. Times are modelled milliseconds.
type DemoSummary struct {
	Requests      int            `json:"requests"`
	Failed        int            `json:"failed"`
	ErrorKinds    map[string]int `json:"error_kinds,omitempty"`
	HitHBMTokens  int64          `json:"hit_hbm_tokens"`
	HitTierTokens int64          `json:"hit_tier_tokens"`
	// The router's own account: what it expected of each request before it sent
	// it, what the answer told, and |predicted − actual| summed over the requests.
	CachedTokensPredicted int64 `json:"cached_tokens_predicted"`
	CachedTokensActual    int64 `json:"cached_tokens_actual"`
	CachedTokensAbsError  int64 `json:"cached_tokens_abs_error"`
	// Blocks that came into the workers' HBM, and those that had to go from it.
	StoredBlocks  int64 `json:"stored_blocks"`
	EvictedBlocks int64 `json:"evicted_blocks"`
	// WorkerRestarts is how many workers were drained and restarted,
	// RouterRestarts how often the router was.
	WorkerRestarts int `json:"worker_restarts"`
	RouterRestarts int `json:"router_restarts"`

	PromptTokens   int64  `json:"prompt_tokens"`
	OutputTokens   int64  `json:"output_tokens"`
	TTFTMeanMillis Figure `json:"ttft_mean_ms"`
	TTFTP99Millis  Figure `json:"ttft_p99_ms"`
	// The share of prompt tokens that were cached, by when the requests were sent;
	// unknown where no duration was given. What restarts does so in between.
	HitShareFirstHalf  Figure `json:"hit_share_first_half"`
	HitShareSecondHalf Figure `json:"hit_share_second_half"`

	Workers     int     `json:"workers"`
	Replicas    int     `json:"replicas"` // of the router
	WallSeconds float64 `json:"wall_seconds"`

	LastError string `json:"last_error,omitempty"`
}

// defaultDuration is how long a demo sends that ends by itself.
const defaultDuration = 20 * time.Second

func (cfg DemoConfig) withDefaults() (DemoConfig, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 4
	}
	if cfg.Workers < 1 || cfg.Workers > 1024 {
		return cfg, fmt.Errorf("workers is %d, want 1 to 1024", cfg.Workers)
	}
	if cfg.Speedup == 0 {
		cfg.Speedup = 1
	}
	if !(cfg.Speedup > 0 && cfg.Speedup <= 1e6) {
		return cfg, fmt.Errorf("speedup is %v, want more than 0 and at most 1e6", cfg.Speedup)
	}
	if cfg.Once && cfg.Duration <= 0 {
		cfg.Duration = defaultDuration
	}
	if cfg.Chat == (workload.Chat{}) {
		cfg.Chat = workload.DefaultChat()
	}
	if err := cfg.Chat.Validate(); err != nil {
		return cfg, err
	}
	if min(cfg.RestartWorkerAfter, cfg.RestartRouterAfter) < 0 {
		return cfg, fmt.Errorf("restarts after %v and %v, want 0 or more", cfg.RestartWorkerAfter, cfg.RestartRouterAfter)
	}
	if cfg.StartWorkers == nil || cfg.StartRouter == nil || cfg.Out == nil {
		return cfg, errors.New("StartWorkers, StartRouter and Out must be set")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	return cfg, nil
}

// answerTimeout bounds one answer of the demo, in wall time.
const answerTimeout = 2 * time.Minute

// demo is a running demo.
type demo struct {
	cfg     DemoConfig
	workers *Workers
	client  *client
	alive   context.Context // of what the demo started
	gate    gate            // of the router
	format  format
	start   clock.Instant

	meter          *meter
	mu             sync.Mutex // guards the next
	router         *Router
	balance        *rand.Rand  // draws replicas
	past           RouterStats // of routers before it
	byTTFT         map[string]*ttftOf
	halves         [2]half
	lastErr        error
	workerRestarts int
	routerRestarts int
}

// ttftOf sums up the TTFT seen of one worker.
type ttftOf struct {
	micros float64
	n      int
}

// Demo starts workers and a router, holds conversations with the router, and
// shows what happens each second, until ctx ends or the configured time is
// over. Either way it then writes a summary, closes what it started, and
// returns without error. Failed requests are counted in the summary.
func Demo(ctx context.Context, cfg DemoConfig) (_ DemoSummary, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return DemoSummary{}, fmt.Errorf("demo: %w", err)
	}
	// Workers and router outlive ctx, until the summary has been taken; only
	// their start is bound to it.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	started := context.AfterFunc(ctx, end)
	workers, err := cfg.StartWorkers(alive, cfg.Workers)
	if err != nil {
		return DemoSummary{}, fmt.Errorf("demo: start %d workers: %w", cfg.Workers, err)
	}
	defer closing(&err, "workers", workers.Close)
	router, err := cfg.StartRouter(alive, workers.Lines)
	if err != nil {
		return DemoSummary{}, fmt.Errorf("demo: start the router: %w", err)
	}
	if !started() {
		defer closing(&err, "router", router.Close)
		return DemoSummary{}, fmt.Errorf("demo: ended while it started: %w", ctx.Err())
	}

	d := &demo{
		cfg: cfg, alive: alive, workers: workers, router: router, start: cfg.Clock.Now(),
		balance: clock.Rand(1, "balancer"),
		client:  newClient(cfg.Transport, cfg.Clock, answerTimeout),
		meter:   newMeter(cfg.Speedup), byTTFT: make(map[string]*ttftOf),
	}
	defer closing(&err, "router", d.closeRouter)
	defer d.client.Close()
	if d.format, err = newFormat(workers.Model); err != nil {
		return DemoSummary{}, fmt.Errorf("demo: %w", err)
	}
	return d.run(ctx)
}

func closing(err *error, what string, shut func() error) {
	if shut == nil {
		return
	}
	if e := shut(); e != nil && *err == nil {
		*err = fmt.Errorf("demo: close the %s: %w", what, e)
	}
}

// run talks and draws, and sums up when both are over.
func (d *demo) run(ctx context.Context) (DemoSummary, error) {
	screen := newScreen(d.cfg.Out, d.cfg.TTY)
	if !d.cfg.JSON {
		screen.print(d.greeting())
	}
	// The end of sending stops new turns; those under way are answered. The
	// end of ctx stops them too.
	sending, stop := context.WithCancel(ctx)
	defer stop()
	drawing, stopDrawing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopDrawing()
	var timer, drawer, restarter sync.WaitGroup
	var workerErr, routerErr error
	restarter.Go(func() { workerErr = d.restartWorker(sending) })
	restarter.Go(func() { routerErr = d.restartRouter(sending) })
	if d.cfg.Duration > 0 {
		timer.Go(func() {
			_ = d.cfg.Clock.Sleep(sending, d.cfg.Duration)
			stop()
		})
	}
	if !d.cfg.JSON {
		drawer.Go(func() { d.draw(drawing, screen) })
	}
	d.talk(ctx, sending)
	stop()
	timer.Wait()
	restarter.Wait()
	stopDrawing()
	drawer.Wait()

	sum := d.summary()
	if err := errors.Join(workerErr, routerErr); err != nil {
		return sum, fmt.Errorf("demo: %w", err)
	}
	if d.cfg.JSON {
		enc := json.NewEncoder(d.cfg.Out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(sum); err != nil {
			return sum, fmt.Errorf("demo: write the summary: %w", err)
		}
		return sum, nil
	}
	screen.print(sum.lines())
	if screen.err != nil {
		return sum, fmt.Errorf("demo: write to the terminal: %w", screen.err)
	}
	return sum, nil
}

// add counts one answer. What the end of the demo cut off counts as nothing.
func (d *demo) add(r *result) {
	if r.Kind == KindCancelled {
		return
	}
	d.meter.add(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Kind != "" {
		d.lastErr = r.Err
		return
	}
	h := &d.halves[d.halfOf(r.Sent)]
	h.prompt += int64(r.Usage.PromptTokens)
	h.cached += int64(r.Usage.CachedTokens)
	w := d.byTTFT[r.Emulated.Worker]
	if w == nil && len(d.byTTFT) == maxWorkers {
		return
	}
	if w == nil {
		w = new(ttftOf)
		d.byTTFT[r.Emulated.Worker] = w
	}
	w.micros += d.meter.modelled(r.First.Sub(r.Sent))
	w.n++
}

// workerTTFT returns the mean TTFT seen of a worker, in modelled milliseconds.
func (d *demo) workerTTFT(name string) Figure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.byTTFT[name]; w != nil {
		return Figure(w.micros / float64(w.n) / 1e3)
	}
	return unknown
}

func (d *demo) summary() DemoSummary {
	m := d.meter.measures()
	r := d.routerStats()
	sum := DemoSummary{
		Requests: m.Requests, Failed: m.Errors, ErrorKinds: m.ErrorKinds,
		CachedTokensPredicted: r.CachedPredicted, CachedTokensActual: r.CachedActual, CachedTokensAbsError: r.CachedAbsError,
		PromptTokens: m.PromptTokens, OutputTokens: m.OutputTokens,
		TTFTMeanMillis: m.TTFTMeanMillis, TTFTP99Millis: m.TTFTP99Millis,
		HitShareFirstHalf: unknown, HitShareSecondHalf: unknown, Workers: len(d.workers.Lines), WallSeconds: d.cfg.Clock.Now().Sub(d.start).Seconds(),
	}
	for _, w := range d.workers.Stats() {
		sum.HitHBMTokens += w.HitHBMTokens
		sum.HitTierTokens += w.HitTierTokens
		sum.StoredBlocks += w.StoredBlocks
		sum.EvictedBlocks += w.EvictedBlocks
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sum.Replicas = max(1, len(d.router.Replicas))
	sum.WorkerRestarts, sum.RouterRestarts = d.workerRestarts, d.routerRestarts
	if d.cfg.Duration > 0 {
		sum.HitShareFirstHalf, sum.HitShareSecondHalf = d.halves[0].hitShare(), d.halves[1].hitShare()
	}
	if d.lastErr != nil {
		sum.LastError = d.lastErr.Error()
	}
	return sum
}
