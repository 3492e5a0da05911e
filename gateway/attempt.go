package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

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
	if g.deps.Prepare != nil && x.json && x.body.rest == nil {
		g.deps.Prepare(x.r.Context(), x.prompt, x.path, x.body.plain)
	}
	q := x.query
	var failed error
	for n := 1; ; n++ {
		d, err := g.place(x, q)
		if errors.Is(err, route.ErrUnknownModel) && !g.expected(x.prompt.Model) {
			x.model = modelOther
			return fmt.Errorf("%w: no worker serves %q", route.ErrUnknownModel, shorten(x.prompt.Model))
		}
		x.model = g.metrics.model(x.prompt.Model)
		switch {
		case err != nil && failed != nil:
			return g.give(x, failed) // says more than that nobody is left
		case errors.Is(err, route.ErrUnknownModel):
			return route.ErrNoWorker // for now
		case errors.Is(err, route.ErrNoWorker) && x.follows:
			return errStateGone
		case err != nil:
			return err
		}
		if n == 1 {
			g.askShadow(x, d)
		} else {
			g.metrics.retries.Inc()
		}
		if g.deps.Placed != nil && x.json && x.body.rest == nil {
			g.deps.Placed(d, x.prompt, x.path, x.body.plain, n > 1)
		}
		failed = g.attempt(x, d)
		again := errors.Is(failed, errRetryable) || errors.Is(failed, errTurnedAway)
		if !again || n == g.cfg.MaxAttempts || x.body.rest != nil && x.body.rest.begun.Load() {
			return g.give(x, failed)
		}
		if !g.retries.take() {
			g.metrics.retriesDenied.Inc()
			return g.give(x, failed)
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
	payload  payload
	uploads  sync.WaitGroup // readers of payload that the transport still has
	reading  atomic.Int32   // how many these are
	lingers  bool           // the answered client's upload is still taken for a while
	outcome  route.Outcome
}

// attempt is the fourth hop: it sends x to the worker that d names and relays
// the answer. d is done when it returns, however it does.
func (g *Gateway) attempt(x *exchange, d *route.Decision) error {
	a := &attempt{g: g, x: x, decision: d, payload: x.payload(d), outcome: route.Outcome{Result: route.Failed, Cause: x.cause(), Caller: x.callerHash()}}
	defer func() { g.deps.Decider.Done(d, a.outcome) }()
	defer a.endUpload()
	defer a.watch()()
	defer g.spanOfAttempt(a)()
	a.timer = time.AfterFunc(time.Hour, func() { a.cancel(errUpstreamTimeout) })
	defer a.timer.Stop()
	a.limit(0)
	if x.prompt.Stream {
		a.limit(g.cfg.FirstByteTimeout)
	}
	resp, err := a.send()
	if err != nil {
		return a.noResponse(err)
	}
	defer func() {
		a.leaveUpload() // which Close may wait for
		resp.Body.Close()
	}()
	if resp.StatusCode < 200 { // a switch of protocols that nobody asked for, or nonsense
		g.countFailure("protocol")
		return fmt.Errorf("%w: its status is %d", errUpstream, resp.StatusCode)
	}
	if err := a.turnedAway(resp); err != nil {
		return err
	}
	return a.relay(resp)
}

// watch has the attempt end with its client, unless what ended is only that
// client's upload, by us: a worker may answer before it has read all, and is
// believed. What is returned ends the watch, and the attempt's context.
func (a *attempt) watch() (end func()) {
	client := a.x.r.Context()
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(client))
	stop := context.AfterFunc(client, func() {
		if rest := a.payload.rest; rest == nil || !rest.given.Load() {
			a.cancel(context.Cause(client))
		}
	})
	return func() { stop(); a.cancel(nil) }
}

// send hands the request to the worker's transport, which closes its body; a
// panic on the way must not leave one behind that is waited for.
func (a *attempt) send() (*http.Response, error) {
	r := a.request()
	handed := false
	defer func() {
		if !handed {
			_ = r.Body.Close()
		}
	}()
	a.x.mayAsk()
	defer a.x.client.mayAsk("")
	resp, err := a.g.do(a.decision.Worker, r)
	handed = true
	return resp, err
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
	if a.payload.plain || x.strip {
		header = maps.Clone(header)
	}
	if a.payload.plain {
		delete(header, "Content-Encoding")
	}
	if x.strip { // what is to be taken out of the answer must be readable
		delete(header, "Accept-Encoding")
	}
	r := &http.Request{
		Method:        x.r.Method,
		URL:           &url.URL{Path: x.path, RawQuery: x.r.URL.RawQuery},
		Header:        injectSpan(a.ctx, header),
		Body:          http.NoBody,
		ContentLength: a.payload.length,
	}
	if a.payload.length != 0 {
		r.Body, r.GetBody = a.upload(), func() (io.ReadCloser, error) {
			if a.written.Load() || a.payload.rest != nil {
				// The transport would like to repeat on a new connection what the
				// worker has already been sent; whether to try again is decided here.
				return nil, errUpstream
			}
			return a.upload(), nil
		}
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

// upload returns a reader of the payload, from its start.
func (a *attempt) upload() io.ReadCloser {
	a.uploads.Add(1)
	a.reading.Add(1)
	return &upload{pieces: slices.Clone(a.payload.pieces), rest: a.payload.rest, done: func() {
		a.reading.Add(-1)
		a.uploads.Done()
	}}
}

// letGo gives the body's memory back once the worker has all of it and has
// begun to answer, so that there will be no other attempt: an answer may go on
// for long.
func (a *attempt) letGo() {
	if a.x.body.reserved > 0 && a.written.Load() && a.reading.Load() == 0 {
		a.payload.pieces = nil
		a.g.release(a.x)
	}
}

// lingering is how long what a client sends beyond the limit is still taken,
// so that it can read its answer before the connection ends.
const lingering = time.Second

// leaveUpload ends the transport's wait for a client that sends no more. One
// that was answered gets time to see it.
func (a *attempt) leaveUpload() {
	if r := a.payload.rest; r != nil && r.begun.Load() && !r.ended.Load() && !r.given.Load() {
		a.lingers = a.x.status != 0 && a.x.r.ProtoMajor < 2 && !errors.Is(r.fault(), errBodyTooLarge) &&
			http.NewResponseController(a.x.w).Flush() == nil
		patience := time.Duration(0)
		if a.lingers {
			patience = lingering
		}
		r.abandon(patience)
	}
}

// endUpload waits until the transport has let go of the body, whose memory is
// in use until then.
func (a *attempt) endUpload() {
	a.leaveUpload()
	a.uploads.Wait()
	switch r := a.payload.rest; {
	case a.lingers:
		r.drain()
	case r != nil && errors.Is(r.fault(), errBodyTooLarge):
		_ = r.control.SetReadDeadline(time.Now().Add(lingering))
	}
}

// noResponse judges an attempt that ended before the head of a response.
func (a *attempt) noResponse(err error) error {
	if stop := a.stopped(); stop != nil {
		return stop
	}
	if rest := a.payload.rest; rest != nil && rest.fault() != nil {
		a.outcome.Result = route.Cancelled // the client's fault
		return rest.fault()
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

// causeBytes is how much of a body's beginning and of its end tells it from
// others.
const causeBytes = 32 << 10

// cause names what was asked for: requests of the same body have the same.
func (x *exchange) cause() uint64 {
	b := x.body.received
	h := xxh3.Hash(b[:min(len(b), causeBytes)])
	return h ^ xxh3.Hash(b[max(0, len(b)-causeBytes):])<<1 ^ uint64(len(b))
}

// callerHash tells callers apart: by the key that they have or, without keys,
// by the address that they call from.
func (x *exchange) callerHash() uint64 {
	if x.caller.name != "" {
		return xxh3.HashString("key " + x.caller.name)
	}
	host, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		host = x.r.RemoteAddr
	}
	return xxh3.HashString("address " + host)
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
