package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// answered is how one request of a wave ended.
type answered struct {
	status     int
	retryAfter string
	err        error
}

// wave posts n bodies at once, each on a connection of its own.
func wave(url string, n int, body func() (io.Reader, int64), header ...string) []answered {
	all := make([]answered, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			transport := &http.Transport{DisableCompression: true}
			defer transport.CloseIdleConnections()
			r, length := body()
			req, err := http.NewRequest("POST", url+chatPath, r)
			if err != nil {
				all[i].err = err
				return
			}
			req.ContentLength = length
			for _, h := range header {
				name, value, _ := strings.Cut(h, ": ")
				req.Header.Set(name, value)
			}
			resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(req)
			if err != nil {
				all[i].err = err
				return
			}
			defer resp.Body.Close()
			_, all[i].err = io.Copy(io.Discard, resp.Body)
			all[i].status, all[i].retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
		})
	}
	wg.Wait()
	return all
}

// TestHostile_LargeBodiesShareABudget sends 64 bodies of 30 MB at once: what
// doesn't fit into the budget is refused for now, memory stays bounded by it,
// and small requests pass all the time.
func TestHostile_LargeBodiesShareABudget(t *testing.T) {
	f := newFront(t, smallLimits, newSink(t).url)
	n := newNeighbour(t, f)
	peak := testkit.HeapPeak(t)
	const size = 30 << 20
	served, refused, cut := 0, 0, 0
	for _, a := range wave(f.url, 64, func() (io.Reader, int64) { return chatOf(size), size }) {
		switch {
		case a.err == nil && a.status == 200:
			served++
		case a.status == 503 && a.retryAfter != "":
			refused++
		case a.err != nil && a.status == 0: // hung up on while it was still sending: it can't see the answer
			cut++
		default:
			t.Errorf("one ended with %+v", a)
		}
	}
	n.wasServed(t)
	// When the wave is over, what it held can be had again.
	testkit.Until(t, "no body is in memory", func() bool {
		return testkit.Metric(t, f.metrics(), "rhizome_gateway_buffered_body_bytes") == 0
	})
	for _, a := range wave(f.url, 1, func() (io.Reader, int64) { return chatOf(size), size }) {
		if a.err != nil || a.status != 200 {
			t.Errorf("after the wave a large body ended with %+v", a)
		}
	}
	// The collector lets garbage grow to the size of what lives, and pools keep some.
	if most := 4 * smallLimits.BufferBudgetBytes; peak() > most {
		t.Errorf("the heap grew by %d MiB, want at most %d", peak()>>20, most>>20)
	}
	t.Logf("%d served, %d refused, %d cut off; the heap grew by %d MiB", served, refused, cut, peak()>>20)
}

// bomb is a small gzip stream that decodes to n copies of text, or layers of
// such streams. It is made of members, each whole, so that making it is cheap.
func bomb(text string, n, layers int) string {
	out := strings.Repeat(gzipped(text), n)
	for range layers - 1 {
		out = gzipped(out)
	}
	return out
}

// TestHostile_CompressionBombs: what decodes to more than the limit is
// refused before it has taken the memory.
func TestHostile_CompressionBombs(t *testing.T) {
	worker := newSink(t)
	limits := gateway.Config{MaxBodyBytes: 4 << 20, BufferBudgetBytes: 16 << 20}
	f := newFront(t, limits, worker.url)
	piece := strings.Repeat(" ", 1<<20) // white space before a document
	for name, c := range map[string]struct {
		body   string
		coding string
	}{
		"once":  {bomb(piece, 64, 1), "gzip"},
		"twice": {bomb(piece, 512, 2), "gzip, gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighbour(t, f)
			peak := testkit.HeapPeak(t)
			for _, a := range wave(f.url, 4, func() (io.Reader, int64) { return strings.NewReader(c.body), int64(len(c.body)) }, "Content-Encoding: "+c.coding) {
				if a.err != nil || a.status != 413 && a.status != 503 {
					t.Errorf("a bomb of %d bytes ended with %+v", len(c.body), a)
				}
			}
			n.wasServed(t)
			if most := 4 * limits.BufferBudgetBytes; peak() > most {
				t.Errorf("the heap grew by %d MiB, want at most %d", peak()>>20, most>>20)
			}
			t.Logf("%d bytes; the heap grew by %d MiB", len(c.body), peak()>>20)
		})
	}
	// Encodings without end cost no more than their list.
	codings := strings.TrimSuffix(strings.Repeat("gzip, ", 10_000), ", ")
	for _, a := range wave(f.url, 1, func() (io.Reader, int64) { return strings.NewReader(gzipped(asked)), -1 }, "Content-Encoding: "+codings) {
		if a.err != nil || a.status < 400 || a.status >= 500 {
			t.Errorf("ten thousand codings ended with %+v", a)
		}
	}
}

// TestBR23_LimitIsExact: one byte decides, whether the length is announced or
// not, and the refusal is a readable error.
func TestBR23_LimitIsExact(t *testing.T) {
	const limit = 1 << 20
	cfg := smallLimits
	cfg.MaxBodyBytes = limit
	f := newFront(t, cfg, newSink(t).url)
	for _, c := range []struct {
		size   int64
		status int
	}{{limit - 1, 200}, {limit, 200}, {limit + 1, 413}, {3 * limit, 413}} {
		for _, announced := range []int64{c.size, -1} {
			for _, a := range wave(f.url, 1, func() (io.Reader, int64) { return chatOf(c.size), announced }) {
				if a.err != nil || a.status != c.status {
					t.Errorf("%d bytes, announced as %d: %+v, want %d", c.size, announced, a, c.status)
				}
			}
		}
	}
}
