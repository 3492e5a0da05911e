package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// Kinds of failure, as reports name them. A status other than 200 is named by
// its number, such as "status_503".
const (
	KindConnect   = "connect"   // no answer: refused, reset, unknown host
	KindTimeout   = "timeout"   // the whole answer took longer than allowed
	KindBroken    = "broken"    // the answer broke off, or ended without [DONE]
	KindStream    = "stream"    // an error event, or a stream without a token
	KindCancelled = "cancelled" // the run was ended
	KindOverrun   = "overrun"   // not sent: too many requests in flight
)

// result is what one request came to. Instants are of the client's clock.
type result struct {
	// Kind is empty for a complete answer; else the kind of failure, and Err
	// says more.
	Kind string
	Err  error
	// Sent is when the request was written, First and Last when its first and
	// last token came, End when the answer ended.
	Sent, First, Last, End clock.Instant
	// Tokens is how many tokens the answer had: by its usage, else by its events.
	Tokens int
	Usage  usageCount
	// Emulated is what an emulated worker said about itself.
	Emulated emulated
	// Worker and Replica are what Rhizome's headers say took the request.
	Worker, Replica string
}

// emulated is what the headers of an emulated worker's answer tell.
type emulated struct {
	Worker                  string // empty for a real worker
	Speedup                 float64
	ClockMicros, BusyMicros float64 // modelled; only when HasBusy
	HasBusy                 bool
}

// client sends streaming requests and measures their answers.
// It is safe for concurrent use.
type client struct {
	transport http.RoundTripper
	clock     clock.Clock
	timeout   time.Duration
	bodies    bodies
	readers   sync.Pool // of *answerReader
}

// newClient returns a client whose requests may take up to timeout of wall time
// each. A nil transport means one of its own, with keep-alive and without
// compression or proxies.
func newClient(transport http.RoundTripper, clk clock.Clock, timeout time.Duration) *client {
	if transport == nil {
		transport = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 4096,
			IdleConnTimeout:     5 * time.Second, // less than servers wait, lest both race
			DisableCompression:  true,
			WriteBufferSize:     64 << 10,
			ReadBufferSize:      8 << 10,
		}
	}
	return &client{transport: transport, clock: clk, timeout: timeout}
}

// Close drops idle connections.
func (c *client) Close() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// answerReader is what reading one answer needs; reused, since streams are many.
type answerReader struct {
	stream stream
	buf    [16 << 10]byte
}

// do sends b to url and reads the answer to its end. onData, if set, gets every
// event's data. The caller holds b.
func (c *client) do(ctx context.Context, url string, b *body, onData func([]byte)) result {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTooLong)
	defer cancel()
	req, err := b.request(url)
	if err != nil {
		return result{Kind: KindConnect, Err: err}
	}
	res := result{Sent: c.clock.Now()}
	resp, err := c.transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return c.failed(ctx, res, KindConnect, err)
	}
	defer resp.Body.Close()
	res.Emulated = readEmulated(resp.Header)
	res.Worker, res.Replica = resp.Header.Get("X-Rhizome-Worker"), resp.Header.Get("X-Rhizome-Replica")
	if resp.StatusCode != http.StatusOK {
		says, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		kind := "status_" + strconv.Itoa(resp.StatusCode)
		return c.failed(ctx, res, kind, fmt.Errorf("%s answered %q: %.300q", url, resp.Status, strings.TrimSpace(string(says))))
	}
	r, ok := c.readers.Get().(*answerReader)
	if !ok {
		r = new(answerReader)
	}
	defer c.readers.Put(r)
	r.stream.reset(onData)
	return c.read(ctx, res, resp.Body, r)
}

func (c *client) read(ctx context.Context, res result, from io.Reader, r *answerReader) result {
	s := &r.stream
	for {
		n, err := from.Read(r.buf[:])
		now := c.clock.Now()
		if bad := s.feed(r.buf[:n], now); bad != nil {
			return c.failed(ctx, res, KindBroken, bad)
		}
		if err == nil {
			continue
		}
		res.First, res.Last, res.End = s.first, s.last, now
		res.Usage = parseUsage(s.usage)
		res.Tokens = s.tokenEvents
		if res.Usage.Known {
			res.Tokens = res.Usage.CompletionTokens
		}
		// After [DONE] the answer is whole, however the connection ends.
		if !errors.Is(err, io.EOF) && !s.done {
			return c.failed(ctx, res, KindBroken, err)
		}
		switch end := s.end(); {
		case errors.Is(end, errNoDone):
			return c.failed(ctx, res, KindBroken, end)
		case end != nil:
			return c.failed(ctx, res, KindStream, end)
		}
		return res
	}
}

// errTooLong ends one request; whatever else ends its context ends the run.
var errTooLong = errors.New("no whole answer in time")

// failed completes res; a run that ended or a time-out outranks kind.
func (c *client) failed(ctx context.Context, res result, kind string, err error) result {
	switch {
	case errors.Is(context.Cause(ctx), errTooLong):
		kind, err = KindTimeout, fmt.Errorf("no whole answer within %v: %w", c.timeout, err)
	case ctx.Err() != nil:
		kind = KindCancelled
	}
	res.Kind, res.Err, res.End = kind, err, c.clock.Now()
	return res
}

func readEmulated(h http.Header) emulated {
	e := emulated{Worker: h.Get("x-emulator-worker")}
	number := func(name string) (float64, bool) {
		v, err := strconv.ParseFloat(h.Get(name), 64)
		return v, err == nil && v >= 0 && v < 1e18
	}
	e.Speedup, _ = number("x-emulator-speedup")
	var hasClock, hasBusy bool
	e.ClockMicros, hasClock = number("x-emulator-clock-micros")
	e.BusyMicros, hasBusy = number("x-emulator-busy-micros")
	e.HasBusy = hasClock && hasBusy
	return e
}

// firstModel asks a base URL which models it serves and returns the first.
func (c *client) firstModel(ctx context.Context, base string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, min(c.timeout, 10*time.Second))
	defer cancel()
	url := base + "/v1/models"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("ask %s for its models: %w", url, err)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return "", fmt.Errorf("ask %s for its models: %w", url, err)
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 4<<20)).Decode(&list)
	if resp.StatusCode != http.StatusOK || err != nil || len(list.Data) == 0 {
		return "", fmt.Errorf("%s answered %q and named no model: name one yourself", url, resp.Status)
	}
	return list.Data[0].ID, nil
}
