package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/route"
)

// errRetryable marks a failure after which another worker may be asked: the
// client has seen nothing, and the worker has sent nothing.
var errRetryable = fmt.Errorf("%w before it answered", errUpstream)

// dispatch is the third hop: it lets the router decide, tries what it chose,
// and goes on to another worker while that is right.
func (g *Gateway) dispatch(x *exchange) error {
	g.retries.add()
	q := route.Query{ID: x.id, Prompt: x.prompt, Session: x.session}
	var failed error
	for n := 1; ; n++ {
		d, err := g.deps.Decider.Decide(q)
		if errors.Is(err, route.ErrUnknownModel) {
			x.model = modelOther
			return fmt.Errorf("%w: no worker serves %q", route.ErrUnknownModel, shorten(x.prompt.Model))
		}
		x.model = g.metrics.model(x.prompt.Model)
		if err != nil && failed != nil {
			return failed // says more than that nobody is left
		}
		if err != nil {
			return err
		}
		if n > 1 {
			g.metrics.retries.Inc()
		}
		failed = g.attempt(x, d)
		if !errors.Is(failed, errRetryable) || n == g.cfg.MaxAttempts {
			return failed
		}
		if !g.retries.take() {
			g.metrics.retriesDenied.Inc()
			return failed
		}
		q.Exclude = append(q.Exclude, d.Target)
	}
}

// attempt is one decision carried out: a request to one worker and the relay
// of its answer.
type attempt struct {
	g        *Gateway
	x        *exchange
	decision *route.Decision
	ctx      context.Context
	cancel   context.CancelCauseFunc
	timer    *time.Timer // cancels with errUpstreamTimeout
	received atomic.Bool // the worker sent at least one byte
	written  atomic.Bool // the worker was sent the whole request
	outcome  route.Outcome
}

// attempt is the fourth hop: it sends x to the worker that d names and relays
// the answer. d is done when it returns, however it does.
func (g *Gateway) attempt(x *exchange, d *route.Decision) error {
	a := &attempt{g: g, x: x, decision: d, outcome: route.Outcome{Result: route.Failed}}
	defer func() { g.deps.Decider.Done(d, a.outcome) }()
	a.ctx, a.cancel = context.WithCancelCause(x.r.Context())
	defer a.cancel(nil)
	a.timer = time.AfterFunc(time.Hour, func() { a.cancel(errUpstreamTimeout) })
	defer a.timer.Stop()
	a.limit(0)
	if x.prompt.Stream {
		a.limit(g.cfg.FirstByteTimeout)
	}
	resp, err := g.do(d.Worker, a.request())
	if err != nil {
		return a.noResponse(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 { // a switch of protocols that nobody asked for, or nonsense
		g.countFailure("protocol")
		return fmt.Errorf("%w: its status is %d", errUpstream, resp.StatusCode)
	}
	return a.relay(resp)
}

// limit gives the worker d from now to go on; no limit where d isn't positive.
func (a *attempt) limit(d time.Duration) {
	if d > 0 {
		a.timer.Reset(d)
	} else {
		a.timer.Stop()
	}
}

// request is x as the worker gets it: the same bytes, a cleaned header.
func (a *attempt) request() *http.Request {
	x := a.x
	header := x.header
	if rank := a.decision.Target.Rank; rank >= 0 {
		header = setRank(header, rank)
	}
	body := func() (io.ReadCloser, error) {
		if a.written.Load() {
			// The transport would like to repeat on a new connection what the
			// worker has already been sent; whether to try again is decided here.
			return nil, errUpstream
		}
		return io.NopCloser(bytes.NewReader(x.body)), nil
	}
	first, _ := body()
	r := &http.Request{
		Method:        x.r.Method,
		URL:           &url.URL{Path: x.path, RawQuery: x.r.URL.RawQuery},
		Header:        header,
		Body:          first,
		GetBody:       body,
		ContentLength: int64(len(x.body)),
	}
	return r.WithContext(httptrace.WithClientTrace(a.ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { a.received.Store(true) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				a.written.Store(true)
			}
		},
	}))
}

// noResponse judges an attempt that ended before the head of a response.
func (a *attempt) noResponse(err error) error {
	if stop := a.stopped(); stop != nil {
		return stop
	}
	kind, failed := "reset", errRetryable
	switch {
	case a.received.Load():
		kind, failed = "protocol", fmt.Errorf("%w: its answer is not HTTP", errUpstream)
	case errors.Is(err, engine.ErrConnect):
		kind, a.outcome.Unreachable = "connect", true
	}
	a.g.countFailure(kind)
	a.g.deps.Log.LogAttrs(a.ctx, slog.LevelDebug, "worker gave no answer",
		slog.String("id", a.x.id), slog.String("kind", kind), slog.Any("error", err))
	return failed
}

// stopped judges an attempt whose context has ended: nil when it has not, so
// that the fault is the worker's.
func (a *attempt) stopped() error {
	err := stopped(a.ctx)
	switch {
	case err == nil:
	case errors.Is(err, errUpstreamTimeout):
		a.g.countFailure("timeout")
	default:
		a.outcome.Result = route.Cancelled
	}
	return err
}

func (g *Gateway) countFailure(kind string) { g.metrics.upstream.WithLabelValues(kind).Inc() }

// result is what a status code says about the worker.
func result(status int) route.Result {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return route.Busy
	case status == http.StatusNotImplemented:
		return route.Rejected
	case status >= 500:
		return route.Failed
	case status >= 400:
		return route.Rejected
	}
	return route.Completed
}
