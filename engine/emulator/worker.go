package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// errClosed says that the worker is closing.
var errClosed = errors.New("the emulated worker is shutting down")

// Worker is one emulated engine. Its methods are safe for concurrent use.
type Worker struct {
	cfg         Config
	dialect     *dialect
	modelConfig model.Config
	owner       *owner
	feed        *feed
	listener    net.Listener
	server      *http.Server
	quotedModel string
	reading     reading

	life       atomic.Pointer[life]
	lives      atomic.Uint64 // restarts so far
	restarting sync.Mutex    // held through a restart
	door       door          // of the engine

	nextCall atomic.Uint64
	renders  atomic.Int64 // answers that told token ids, since the start
	bodies   sync.Pool    // *[]byte

	inFlight atomic.Int64 // requests in handlers

	connsMu sync.Mutex
	open    map[net.Conn]bool // HTTP connections

	conns     sync.WaitGroup // the same
	serving   sync.WaitGroup // the accept loop
	owning    sync.WaitGroup // the owner
	done      chan struct{}  // closed when the owner has stopped
	stopOwner context.CancelFunc
	detach    func() bool // from the context of Start
	closeOnce sync.Once
	closeErr  error
	last      Stats // once done is closed
}

// Start listens and serves until ctx ends or Close is called; Close must be
// called in any case. Errors: an address is taken, or the configuration makes
// no sense.
func Start(ctx context.Context, cfg Config) (*Worker, error) {
	d, err := dialectOf(cfg.Engine)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(d)
	if err := cfg.validate(d); err != nil {
		return nil, err
	}
	m, err := cfg.newModel(d)
	if err != nil {
		return nil, err
	}
	quotedModel, err := json.Marshal(cfg.Model)
	if err != nil {
		return nil, fmt.Errorf("emulated worker: model name %q: %w", cfg.Model, err)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("emulated worker %s: listen for HTTP: %w", cfg.Name, err)
	}
	orString(&cfg.Name, listener.Addr().String())
	feed, err := newFeed(cfg, d)
	if err != nil {
		listener.Close()
		return nil, err
	}
	w := &Worker{
		cfg: cfg, dialect: d, reading: d.reading, modelConfig: m.Config(), feed: feed, listener: listener, done: make(chan struct{}),
		quotedModel: string(quotedModel), bodies: sync.Pool{New: func() any { return new([]byte) }}, open: make(map[net.Conn]bool),
	}
	w.reading.template, w.reading.now = cfg.Template, cfg.Now
	w.life.Store(w.newLife(0))
	w.owner = &owner{
		cfg: cfg, model: m, feed: feed, metrics: w.life.Load().metrics, jobs: make(map[uint64]*job),
		commands: make(chan func(*owner), 256), alarm: newAlarm(),
	}
	w.server = &http.Server{Handler: w.routes(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 1 << 20, ConnState: w.track, ConnContext: withConn}
	ownerCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stopOwner = stop
	w.owning.Go(func() {
		w.owner.run(ownerCtx)
		w.last = w.owner.stats()
		close(w.done)
	})
	w.serving.Go(w.serve)
	w.detach = context.AfterFunc(ctx, w.close)
	cfg.Log.Debug("emulated worker listens", "worker", cfg.Name, "spec", w.Spec())
	return w, nil
}

func (w *Worker) serve() {
	if err := w.server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
		w.cfg.Log.Error("emulated worker stopped serving", "worker", w.cfg.Name, "error", err)
	}
}

// Renders returns how many prompts were rendered or tokenised without running
// them, since the start.
func (w *Worker) Renders() int64 { return w.renders.Load() }

// Close hangs up on everybody and waits until all its goroutines have ended.
func (w *Worker) Close() error {
	w.detach()
	w.close()
	return w.closeErr
}

func (w *Worker) close() {
	w.closeOnce.Do(func() {
		w.closeErr = w.server.Close()
		w.serving.Wait() // no connection is added any more
		w.conns.Wait()   // handlers wait for the owner, so it must outlive them
		w.stopOwner()
		w.owning.Wait()
		w.feed.close()
	})
}

// track notes connections in and out: each has a goroutine of the server's.
func (w *Worker) track(c net.Conn, s http.ConnState) {
	w.connsMu.Lock()
	defer w.connsMu.Unlock()
	switch s {
	case http.StateNew:
		w.conns.Add(1)
		w.open[c] = true
	case http.StateClosed:
		w.conns.Done()
		delete(w.open, c)
	}
}

// Name returns the name told in x-emulator-worker.
func (w *Worker) Name() string { return w.cfg.Name }

// URL returns the base URL of its HTTP API.
func (w *Worker) URL() string { return "http://" + w.listener.Addr().String() }

// EventsEndpoint returns where to subscribe to KV events, "tcp://host:port".
func (w *Worker) EventsEndpoint() string { return "tcp://" + w.feed.eventsAddr }

// ReplayEndpoint returns where to ask for past KV events, "tcp://host:port".
func (w *Worker) ReplayEndpoint() string { return "tcp://" + w.feed.replayAddr }

// Spec returns the worker as the router's --worker flag takes it.
func (w *Worker) Spec() string {
	spec := fmt.Sprintf("%s,events=%s,replay=%s", w.URL(), w.EventsEndpoint(), w.ReplayEndpoint())
	if w.cfg.Engine != VLLM {
		spec += ",engine=" + string(w.cfg.Engine)
	}
	return spec
}

// Stats are the gauges and totals of a worker's present life. Times are
// modelled but for the late ones.
type Stats struct {
	Name        string
	ClockMicros float64 // modelled time
	model.Stats

	// AllLives counts on over restarts.
	AllLives Totals

	// How much later on the wall first tokens came out than the model had
	// them: a fleet that asks too much of its machine shows here.
	MeanLateMicros, MaxLateMicros float64
}

// Totals are what all lives of a worker came to.
type Totals struct {
	Requests                    int64
	HBMHitTokens, TierHitTokens int64 // prompt tokens found in HBM and below
	StoredBlocks, EvictedBlocks int64 // that came into HBM and had to go from it
}

// TierHitTokens returns the prompt tokens loaded from all lower tiers.
func (s Stats) TierHitTokens() int64 {
	var n int64
	for _, t := range s.Lower {
		n += t.HitTokens
	}
	return n
}

// Stats returns the state of now, or the last one of a closed worker.
func (w *Worker) Stats() Stats {
	st, err := ask(w, func(o *owner) Stats {
		o.catchUp()
		return o.stats()
	})
	if err != nil {
		return w.last
	}
	return st
}

func (o *owner) stats() Stats {
	st := Stats{Name: o.cfg.Name, ClockMicros: o.now(), Stats: o.model.Stats(), AllLives: o.totals(), MaxLateMicros: o.maxLate}
	if o.firsts > 0 {
		st.MeanLateMicros = o.sumLate / float64(o.firsts)
	}
	return st
}

func (o *owner) totals() Totals {
	t, m := o.past, o.model.Stats()
	t.Requests += m.Requests
	t.HBMHitTokens += m.HBMHitTokens
	t.TierHitTokens += Stats{Stats: m}.TierHitTokens()
	t.StoredBlocks += o.storedBlocks
	t.EvictedBlocks += m.Evictions
	return t
}

// Cached returns the name of every block that a tier holds, once per copy, in
// no order, after publishing every event that is due. On an idle worker that
// is what its KV events add up to, once the last late one has left.
func (w *Worker) Cached(t kv.Tier) []kv.EngineHash {
	held, _ := ask(w, func(o *owner) []kv.EngineHash {
		o.catchUp()
		var held []kv.EngineHash
		for h := range o.model.Cached(t) {
			held = append(held, h)
		}
		return held
	})
	return held
}

// ask runs f in the owner and returns its answer.
func ask[T any](w *Worker, f func(*owner) T) (T, error) {
	answer := make(chan T, 1)
	if err := w.tell(func(o *owner) { answer <- f(o) }); err != nil {
		var none T
		return none, err
	}
	select {
	case v := <-answer:
		return v, nil
	case <-w.done:
		var none T
		return none, errClosed
	}
}

// tell makes the owner run f, unless it has stopped.
func (w *Worker) tell(f func(*owner)) error {
	select {
	case w.owner.commands <- f:
		return nil
	case <-w.done:
		return errClosed
	}
}
