package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

// Decider chooses workers; *route.Router is the one of the product. Every
// decision it gives gets exactly one Done, whatever happens.
type Decider interface {
	Decide(q route.Query) (*route.Decision, error)
	FirstByte(d *route.Decision)
	Done(d *route.Decision, o route.Outcome)
}

// Registry decides which workers there are; *fleet.Registry is the one of the
// product. Errors wrap fleet.ErrNoWorker where no worker has the id; others say
// what is wrong with a spec.
type Registry interface {
	Add(spec engine.Spec) (kv.WorkerID, error)
	Remove(id kv.WorkerID) error
	SetDraining(id kv.WorkerID, draining bool) error
}

// Deps is what a gateway needs from the rest of the house. Only Queue, Ready,
// Workers, Index, Discovery, Mesh, Streams, Leases, Node, Config, Explain, Recent, Preview, Registry, Placed
// and Tracer may be nil.
type Deps struct {
	Decider Decider
	// Queue lets requests wait for the Decider; nil: none ever waits.
	Queue Queue
	// Models returns the union of the models that healthy workers serve.
	Models func() []engine.Model
	// Ready says why this replica should get no traffic yet; nil when it
	// should. Without it a replica is ready once it knows a model.
	Ready func() error
	// Workers returns what the admin API shows as /workers, as a value that
	// encodes as a JSON list.
	Workers func() any
	// Index returns what the admin API shows as /index: what the workers hold,
	// and how that is known.
	Index func() any
	// Discovery returns what the admin API shows as /discovery: how the sources
	// of workers stand.
	Discovery func() any
	// Node shares with other replicas which worker holds which response; nil for
	// a replica that is alone. The gateway is to be made before it runs.
	Node *mesh.Node
	// Process names the process that a target's worker runs, as all replicas name
	// it, empty where that is unknown: what another process made there is gone.
	// It may be nil.
	Process func(kv.Target) string
	// Mesh returns what the admin API shows as /mesh: the other replicas, and how
	// this one stands with them.
	Mesh func() any
	// Streams returns what the admin API shows as /mesh/streams: what is held of
	// each engine's log, with digests that replicas can be compared by.
	Streams func() any
	// Leases returns what the admin API shows as /leases: what replicas agreed
	// on, and how this one stands with it.
	Leases func(limit int, after string, byKey bool) any
	// Config returns what the admin API shows as /config: the settings in force,
	// without secrets.
	Config func() any
	// Explain returns the account of a decision by request id.
	Explain func(id string) (explanation any, ok bool)
	// Recent returns the last n decisions, newest first, as a value that encodes
	// as a JSON list.
	Recent func(n int) any
	// Preview returns the decision that Decider would make now, and makes none;
	// POST /v1/route of the admin API asks it.
	Preview func(q route.Query) (route.Explanation, error)

	// Prepare is told a request before it is decided where it goes, and may take a
	// moment to find out more about its prompt. Not told are bodies that are not
	// held whole. It may be nil.
	Prepare func(ctx context.Context, p *prompt.Request, path string, body []byte)
	// Placed is told each decision that is about to be carried out, the path
	// that the worker is asked at, and the body as the client sent it, without its
	// encoding; it keeps none of its memory. again says that the request was tried
	// before. Not told are bodies that are not held whole.
	Placed func(d *route.Decision, p *prompt.Request, path string, body []byte, again bool)

	// Told is told the token ids of a text prompt that an answer told. It may be
	// nil.
	Told func(d *route.Decision, p *prompt.Request, ids []uint32)

	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
	Log        *slog.Logger
	Clock      clock.Clock
	// Registry takes what the admin API decides of workers; nil: it can't.
	Registry Registry
	// Tracer records what happens to requests, each as a span; nil: nothing is
	// recorded.
	Tracer trace.Tracer
	// Replica is this replica's name in the header x-rhizome-replica.
	Replica string
}

// Gateway is the front door. It is an http.Handler for the data listener. It
// starts no goroutine of its own but those that ask a shadow, for which
// [Gateway.Close] waits, and timers of reservations, which it stops.
//
// A Gateway never changes: With makes another one of another Config. What the
// two share stands behind pointers; what follows from the Config is made anew.
type Gateway struct {
	cfg      Config
	deps     Deps
	callers  callers // of cfg
	metrics  *metrics
	retries  *retryBudget
	limits   *limiters
	places   *places
	shadow   *shadow
	reserved *reservations
	buffered *atomic.Int64 // bytes of request bodies in memory
	memory   *memory       // what they stand in
	readers  *readers      // of bodies in JSON
	draining *atomic.Bool
	buffers  *sync.Pool // *[]byte of relayBufferBytes
	// do sends a request to a worker: its Do, save in tests without sockets.
	do func(*engine.Worker, *http.Request) (*http.Response, error)
}

// New returns a gateway for cfg, whose zero values mean defaults.
func New(cfg Config, deps Deps) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	cfg = cfg.WithDefaults()
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, err
	}
	limits := newLimiters()
	if deps.Tracer == nil {
		deps.Tracer = noop.NewTracerProvider().Tracer("")
	}
	g := &Gateway{
		cfg:      cfg,
		deps:     deps,
		callers:  newCallers(cfg.Keys, limits),
		metrics:  m,
		retries:  newRetryBudget(cfg.RetryShare),
		limits:   limits,
		places:   newPlaces(cfg.MaxPlaces, deps.Node),
		shadow:   newShadow(m),
		reserved: newReservations(deps.Decider, m),
		buffered: new(atomic.Int64),
		memory:   new(memory),
		readers:  new(readers),
		draining: new(atomic.Bool),
		buffers:  &sync.Pool{New: func() any { b := make([]byte, relayBufferBytes); return &b }},
		do:       (*engine.Worker).Do,
	}
	g.places.held = m.places
	return g, nil
}

// Drain makes /readyz fail, so that balancers look elsewhere before the
// listener closes. Requests are still served, but none waits for a worker any
// more: those that do are refused, so that their clients try another replica.
func (g *Gateway) Drain() {
	g.draining.Store(true)
	if g.deps.Queue != nil {
		g.deps.Queue.CloseQueue()
	}
}

// Close waits for the questions to a shadow that are still open, and releases
// what is reserved.
func (g *Gateway) Close() {
	g.shadow.close()
	g.reserved.close()
}

// exchange is one request on its way through the house.
type exchange struct {
	w     http.ResponseWriter
	r     *http.Request
	id    string
	path  string
	start clock.Instant
	span  trace.Span
	// client is the connection, where it can be asked whether the client is there.
	client *clientConn

	caller   *caller
	body     body
	json     bool   // the body is JSON
	whole    bool   // all of the body is read before anything else
	named    string // the model as the request names it
	state    string // the response or conversation that the path names
	prompt   *prompt.Request
	query    route.Query
	follows  bool        // query.Pin is where the request's state is
	header   http.Header // what workers get to see
	rewrites []string    // those that are on
	strip    bool        // the event with the usage is not for the client
	kept     *keptAnswer // the last refusal of a worker without room; nil: none

	model  string // the label in metrics
	ending string // how it ended, for metrics
	status int    // what was answered; 0 = nothing yet
	events bool   // the response is an event stream that can take an error event
	tail   []byte // the last few bytes sent
	sent   int64  // body bytes sent
	// received counts the bytes of the body that are held in memory.
	received int
}

// ServeHTTP serves one request of the data listener.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{w: w, r: r, id: requestID(r.Header), path: cleanPath(r.URL.Path), start: g.deps.Clock.Now(), client: clientConnOf(r), model: modelNone, ending: "ok"}
	g.metrics.inFlight.Inc()
	g.startSpan(x)
	defer g.finish(x)
	w.Header().Set(headerRequestID, x.id)
	if g.draining.Load() {
		w.Header().Set("Connection", "close") // the next one better goes elsewhere
	}
	if len(r.TransferEncoding) > 0 {
		// net/http goes by the chunks of a request that also has a length, and
		// doesn't tell. What follows on the connection may be what a server in
		// between took for its body (RFC 9112, section 6.3).
		w.Header().Set("Connection", "close")
	}
	if g.cors(x) {
		return
	}
	if err := g.serve(x); err != nil {
		g.fail(x, err)
	}
}

// serve answers x; an error means that it is not, or not wholly, answered.
func (g *Gateway) serve(x *exchange) error {
	kind, handler, err := g.route(x)
	if err == nil && (handler == nil || needsKey(x.path)) {
		err = g.authenticate(x)
	}
	if err != nil {
		return err
	}
	if handler != nil {
		return handler(x)
	}
	if l := x.caller.limit; l != nil {
		if err := l.enter(g.deps.Clock.Now()); err != nil {
			return err
		}
		defer l.leave()
	}
	defer g.release(x)
	if err := g.admit(x, kind); err != nil {
		return err
	}
	return g.dispatch(x)
}

// fail ends an exchange that went wrong. Before the head of a response is out
// the client gets a plain error; after it, only a broken transfer tells the
// truth, and in an event stream one error event before it.
func (g *Gateway) fail(x *exchange, err error) {
	f := describe(err)
	g.deps.Log.LogAttrs(x.r.Context(), slog.LevelDebug, "request failed",
		slog.String("id", x.id), slog.Any("error", err), slog.Int64("bytes_sent", x.sent))
	switch {
	case errors.Is(err, errClientGone):
		x.ending = "client_gone"
		panic(http.ErrAbortHandler)
	case x.status == 0:
		x.ending = "error"
		x.status = f.status
		if x.prompt == nil {
			readShort(x)
		}
		f.write(x.w, dialectOf(x.path))
	default:
		x.ending = "broken"
		var event []byte
		if x.events {
			event = errorEvent(x.tail, f, dialectOf(x.path))
		}
		_ = g.send(x, event, true) // the transfer is broken either way
		panic(http.ErrAbortHandler)
	}
}

// readShort reads what a refused client still sends, if it is short and comes
// soon, as net/http does by itself on HTTP/1.1. On HTTP/2 it would end the
// stream instead, and curl takes that for a fault and shows no answer.
func readShort(x *exchange) {
	const most, patience = 256 << 10, time.Second
	if x.r.ProtoMajor < 2 {
		return
	}
	// Not every ResponseWriter has deadlines.
	if http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(patience)) == nil {
		_, _ = io.CopyN(io.Discard, x.r.Body, most) // the refusal is the same either way
	}
}

// finish accounts for an exchange at its end, also when the handler panics.
func (g *Gateway) finish(x *exchange) {
	g.metrics.inFlight.Dec()
	g.endSpan(x)
	g.metrics.requests.WithLabelValues(codeClass(x.status), x.ending, x.model).Inc()
	if x.prompt != nil {
		took := g.deps.Clock.Now().Sub(x.start)
		g.metrics.requestSeconds.WithLabelValues(x.model).Observe(took.Seconds())
		g.metrics.bytes.WithLabelValues("request").Add(float64(x.received))
		g.metrics.bytes.WithLabelValues("response").Add(float64(x.sent))
	}
}

// stopped says why a request's context ended, if it has.
func stopped(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return nil
	case errors.Is(cause, errUpstreamTimeout), errors.Is(cause, errShuttingDown):
		return cause
	default:
		return errClientGone
	}
}
