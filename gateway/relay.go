package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/route"
)

// relayBufferBytes is the size of the pooled buffers that responses pass
// through.
const relayBufferBytes = 32 << 10

// relay passes a response on as it comes. An error means that the client has
// not got all of it.
func (a *attempt) relay(resp *http.Response) error {
	x := a.x
	codings := codingsOf(resp.Header["Content-Encoding"])
	encoded := len(codings) > 0
	sse := isEventStream(resp.Header)
	live := sse || x.prompt.Stream || resp.ContentLength < 0
	// An event of our own fits in only where there is plain text of no fixed length.
	x.events = sse && !encoded && resp.ContentLength < 0
	t := &tap{sse: sse, ending: endingOf(x), window: a.g.memory.get(tapWindowBytes)}
	defer func() { a.g.memory.put(t.window) }()
	see, seen := a.look(t, codings)
	defer seen()
	if result(resp.StatusCode) == route.Busy {
		a.outcome.RetryAfter = retryAfter(resp.Header, time.Now())
	}
	learn := x.remembers() && resp.StatusCode < 300
	filter := filter(passAll{})
	if x.events && x.strip {
		filter = new(usageStripper)
	}
	if live {
		a.commit(resp)
		if a.g.send(x, nil, true) != nil {
			return a.clientGone()
		}
	}
	var ids *idTap // of a text prompt whose ids the answer tells
	if a.g.deps.Told != nil && x.prompt.ReturnIDs && x.prompt.Tokens == nil && resp.Header.Get("Content-Encoding") == "" && resp.StatusCode < 300 {
		ids = new(idTap)
	}
	told := !x.prompt.Stream || resp.StatusCode >= 300
	err := a.copyBody(resp, live, filter, func(p []byte) {
		see(p)
		if ids != nil {
			ids.Write(p)
		}
		if !told && t.begun() {
			told = true
			a.g.firstByte(a)
		}
		learn = learn && !a.learn(t)
	})
	judged := seen()
	t.Close()
	a.outcome.Usage = t.usage
	if err != nil {
		return err
	}
	if ids != nil && ids.IDs() != nil {
		a.g.deps.Told(a.decision, x.prompt, ids.IDs())
	}
	a.outcome.Result = result(resp.StatusCode)
	switch {
	case a.outcome.Result == route.Failed:
		a.g.countFailure("status")
	case t.failed:
		a.outcome.Result = route.Failed
		a.g.countFailure("error_event")
		x.ending = "error_event"
	case sse && judged && resp.StatusCode == http.StatusOK && !t.finished():
		a.outcome.Result = route.Failed
		a.g.countFailure("unfinished")
		return errStreamUnfinished
	}
	return nil
}

// look returns how t sees the response's bytes, and what ends that, which must
// be called, once or more: it reports whether all of them were seen.
func (a *attempt) look(t *tap, codings []string) (see func([]byte), seen func() bool) {
	if len(codings) == 0 {
		return t.Write, func() bool { return true }
	}
	d := newTapDecoder(t, codings)
	if d == nil {
		a.g.metrics.tapSkipped.Inc()
		return func([]byte) {}, func() bool { return false }
	}
	return d.Write, sync.OnceValue(func() bool {
		ok := d.Close()
		if !ok {
			a.g.metrics.tapSkipped.Inc()
		}
		return ok
	})
}

// filter decides which bytes of a stream pass.
type filter interface {
	// Write returns what of the stream so far may pass; valid until the next call.
	Write(p []byte) []byte
	// Close returns what is left at the stream's end.
	Close() []byte
}

// passAll lets everything pass as it comes.
type passAll struct{}

func (passAll) Write(p []byte) []byte { return p }
func (passAll) Close() []byte         { return nil }

// learn notes which target holds the response or conversation that this
// answer makes, before the client can know of it; false while its id has not
// come.
func (a *attempt) learn(t *tap) bool {
	m := stateID.FindSubmatch(t.window[:min(len(t.window), tapOverlapBytes)])
	if m == nil {
		return t.windows > 0 // it stands at the beginning or nowhere
	}
	target := a.decision.Target
	a.g.places.put(place{id: stateKey(a.x.caller.tenant, string(m[1])), target: target, model: a.x.prompt.Model, named: a.x.named, process: a.g.processOf(target)})
	return true
}

// copyBody relays what filter lets pass of the body, flushing every read when
// the response is live, and lets see look at all of it.
func (a *attempt) copyBody(resp *http.Response, live bool, filter filter, see func([]byte)) error {
	x := a.x
	buffer := a.g.buffers.Get().(*[]byte)
	defer a.g.buffers.Put(buffer)
	for first := true; ; {
		if !first || !x.prompt.Stream {
			a.limit(a.g.cfg.IdleTimeout) // until then the limit to the first byte holds
		}
		x.mayAsk()
		n, err := resp.Body.Read(*buffer)
		x.client.mayAsk("")
		if n > 0 {
			a.limit(0) // a slow client is not the worker's fault
			first = false
			a.commit(resp)
			a.letGo()
			p := (*buffer)[:n]
			see(p)
			if p = filter.Write(p); len(p) > 0 && a.g.send(x, p, live) != nil {
				return a.clientGone()
			}
		}
		if err != nil && a.g.send(x, filter.Close(), false) != nil {
			return a.clientGone()
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			// What is not sent yet goes out when the handler returns: a client that
			// has all of a short answer finds its request accounted for.
			a.commit(resp)
			for name, values := range resp.Trailer {
				x.w.Header()[http.TrailerPrefix+name] = values
			}
			return nil
		default:
			if stop := a.stopped(); stop != nil {
				return stop
			}
			a.g.countFailure("broken")
			return errBrokenStream
		}
	}
}

// firstByte tells that a streaming response has begun.
func (g *Gateway) firstByte(a *attempt) {
	g.deps.Decider.FirstByte(a.decision)
	took := g.deps.Clock.Now().Sub(a.x.start)
	g.metrics.ttftSeconds.WithLabelValues(a.x.model).Observe(took.Seconds())
}

// commit sends the head of the response, once.
func (a *attempt) commit(resp *http.Response) {
	x := a.x
	if x.status != 0 {
		return
	}
	h := x.w.Header()
	ours := len(a.g.cfg.CORS.Origins) > 0
	vary := h["Vary"]
	for name, values := range endToEnd(resp.Header) {
		if !ours || !strings.HasPrefix(name, corsPrefix) { // which pages may read is for one of us to say
			h[name] = values
		}
	}
	if len(vary) > 0 {
		h["Vary"] = slices.Concat(vary, resp.Header["Vary"])
	}
	for _, made := range []string{"Content-Type", "Date"} {
		if _, ok := h[made]; !ok {
			h[made] = nil // keeps net/http from making one up
		}
	}
	h[headerRequestID] = []string{x.id}
	if !a.g.cfg.HideDecision {
		d := a.decision
		h[headerWorker] = []string{d.Target.String()}
		h[headerReplica] = []string{a.g.deps.Replica}
		h[headerDecision] = []string{fmt.Sprintf("cached=%d; ttft_ms=%d; cost_us=%.0f",
			d.PredictedCachedTokens, d.PredictedTTFT.Milliseconds(), d.CostMicros)}
	}
	x.status = resp.StatusCode
	x.w.WriteHeader(x.status)
}

// clientGone judges an attempt whose answer can't be delivered.
func (a *attempt) clientGone() error {
	a.outcome.Result = route.Cancelled
	return errClientGone
}

// send gives bytes to the client, which may take its time to accept them but
// not for ever; with flush they leave at once, and all before them.
func (g *Gateway) send(x *exchange, p []byte, flush bool) error {
	control := http.NewResponseController(x.w)
	if g.cfg.WriteTimeout > 0 {
		// Not every ResponseWriter has deadlines; without one there is no
		// limit. It must not outlast the write: HTTP/2 ends a stream on it.
		_ = control.SetWriteDeadline(time.Now().Add(g.cfg.WriteTimeout))
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	}
	if len(p) > 0 {
		n, err := x.w.Write(p)
		x.sent += int64(n)
		if err != nil {
			return err
		}
		if x.events {
			p = append(x.tail, p[max(0, len(p)-tailBytes):]...)
			x.tail = append(x.tail[:0], p[max(0, len(p)-tailBytes):]...)
		}
	}
	if flush {
		if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	return nil
}

func isEventStream(h http.Header) bool {
	t, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return t == "text/event-stream"
}

// maxRetryAfter bounds how long a worker can ask to be left alone.
const maxRetryAfter = time.Minute

// retryAfter reads how long a busy worker wants to be left alone, in seconds
// or as a date; 0 when it doesn't say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil && s >= 0 {
		return time.Duration(min(s, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	if t, err := http.ParseTime(value); err == nil {
		return max(0, min(t.Sub(now), maxRetryAfter))
	}
	return 0
}

// tailBytes is how much of what was sent must be known to tell whether an
// event is complete.
const tailBytes = 4

// endsEvent reports whether a stream that has sent tail last, or nothing yet, is
// between two events.
func endsEvent(tail []byte) bool {
	return len(tail) == 0 || bytes.HasSuffix(tail, []byte("\n\n")) || bytes.HasSuffix(tail, []byte("\r\r")) || bytes.HasSuffix(tail, []byte("\r\n\r\n"))
}

// errorEvent is an event that tells of a failure. It starts on a fresh line,
// after an empty one if the stream broke off inside an event.
func errorEvent(tail []byte, f failure, d dialect) []byte {
	var b []byte
	if !endsEvent(tail) {
		b = append(b, "\n\n"...)
	}
	if d == anthropic {
		b = append(b, "event: error\n"...)
	}
	b = append(b, "data: "...)
	b = append(b, f.object(d)...)
	return append(b, "\n\n"...)
}
