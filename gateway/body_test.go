package gateway

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

func packed(t *testing.T, coding, s string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		w, _ = zstd.NewWriter(&b)
	case "flate":
		w, _ = flate.NewWriter(&b, 9)
	}
	io.WriteString(w, s)
	w.Close()
	return b.String()
}

// TestBR08_CompressedRequestBodies: read through the coding, forwarded as sent.
func TestBR08_CompressedRequestBodies(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{MaxBodyBytes: 1 << 20}, w)
	for _, c := range []struct {
		header, body string
		status       int
	}{
		{"gzip", packed(t, "gzip", plainBody), 200},
		{"GZIP, identity", packed(t, "gzip", plainBody), 200},
		{"deflate", packed(t, "zlib", plainBody), 200},
		{"deflate", packed(t, "flate", plainBody), 200},
		{"deflate, gzip", packed(t, "gzip", packed(t, "zlib", plainBody)), 200},
		{"br", packed(t, "br", plainBody), 200},
		{"zstd", packed(t, "zstd", plainBody), 200},
		{"gzip, zstd", packed(t, "zstd", packed(t, "gzip", plainBody)), 200},
		{"compress", "x", 415},
		{"gzip, gzip, gzip, gzip, gzip", "x", 415},
		{"gzip, zstd", "x", 400},
		{"zstd", plainBody, 400},
		{"br", plainBody, 400},
		{"zstd", packed(t, "zstd", plainBody)[:30], 400},
		{"zstd", packed(t, "zstd", strings.Repeat(" ", 5<<20)), 413},
		{"br", packed(t, "br", strings.Repeat(" ", 5<<20)), 413},
		{"gzip", plainBody, 400},
		{"gzip", packed(t, "gzip", plainBody)[:30], 400},
		{"gzip", packed(t, "gzip", strings.Repeat(" ", 5<<20)), 413},
	} {
		a := r.post(chat, c.body, "Content-Encoding: "+c.header)
		if a.status != c.status || c.status != 200 && (strings.Contains(a.body, c.body) && len(c.body) > 1 || !strings.HasPrefix(a.body, `{"error":`)) {
			t.Errorf("%s: got %+v, want %d", c.header, a, c.status)
		}
		if c.status == 200 {
			if got := w.Next(t); got.Body != c.body || got.Header.Get("Content-Encoding") != c.header {
				t.Errorf("%s: the worker got %q", c.header, got.Raw)
			}
		}
	}
}

// TestBR08_AgentsCompressResponsesToo: what coding agents send, to the API that
// they send it to.
func TestBR08_AgentsCompressResponsesToo(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{}, w)
	body := packed(t, "zstd", `{"model":"m","instructions":"be brief","input":[{"role":"user","content":"hi"}],"store":false}`)
	if a := r.post("/v1/responses", body, "Content-Encoding: zstd"); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	if got := w.Next(t); got.Body != body || got.Header.Get("Content-Encoding") != "zstd" || r.picker.queries[0].Prompt.TextBytes == 0 {
		t.Errorf("the worker got %q, the router %+v", got.Raw, r.picker.queries[0].Prompt)
	}
}

// TestBR23_BodyLimits: exactly at the limit passes, one more doesn't, with and
// without an announced length.
func TestBR23_BodyLimits(t *testing.T) {
	const limit = 300_000
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{MaxBodyBytes: limit}, w)
	for _, size := range []int{1000, 16 << 10, 256<<10 - 1, 256 << 10, limit - 1, limit, limit + 1, 2 * limit} {
		body := plainBody + strings.Repeat(" ", size-len(plainBody))
		want := 200
		if size > limit {
			want = 413
		}
		for _, chunked := range []bool{false, true} {
			req, _ := http.NewRequest("POST", r.url+chat, strings.NewReader(body))
			if chunked {
				req.ContentLength = -1
			}
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%d bytes, chunked %v: status %d, want %d", size, chunked, resp.StatusCode, want)
			}
			if want == 200 {
				if got := w.Next(t); got.Body != body || got.Length != int64(size) {
					t.Errorf("%d bytes, chunked %v: the worker got %d", size, chunked, len(got.Body))
				}
			}
		}
	}
}

// TestTooLargeIsSaidBeforeTheBodyIsSent: a client that waits for 100 Continue
// gets the refusal instead.
func TestTooLargeIsSaidBeforeTheBodyIsSent(t *testing.T) {
	r := newRig(t, Config{MaxBodyBytes: 1000})
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n", chat)
	b := make([]byte, len("HTTP/1.1 413 "))
	if io.ReadFull(c, b); string(b) != "HTTP/1.1 413 " {
		t.Errorf("got %q", b)
	}
}

func TestBufferBudgetIsShared(t *testing.T) {
	hold := make(chan struct{})
	w := testkit.NewWorker(t, testkit.Script{testkit.Wait(hold), testkit.Send(testkit.JSON(200, "{}"))})
	r := newRig(t, Config{MaxBodyBytes: 100_000, BufferBudgetBytes: 120_000}, w)
	big := plainBody + strings.Repeat(" ", 90_000)
	first := make(chan got)
	go func() { first <- r.post(chat, big) }()
	w.Next(t)
	if a := r.post(chat, big); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("beyond the budget: %+v", a)
	}
	close(hold)
	if a := <-first; a.status != 200 {
		t.Errorf("within the budget: %+v", a)
	}
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	if a := r.post(chat, big); a.status != 200 {
		t.Errorf("after the first is gone: %+v", a)
	}
}

// TestStalledUploadEnds: a client that stops in the middle of its body is told
// so in the end; one that is merely slow is not.
func TestStalledUploadEnds(t *testing.T) {
	for _, stall := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := memRig(t, Config{UploadTimeout: 10 * time.Second, UploadMinBytesPerSecond: -1}, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
			read, write := io.Pipe()
			go func() {
				for _, c := range []byte(plainBody) {
					time.Sleep(9 * time.Second)
					if _, err := write.Write([]byte{c}); err != nil {
						return
					}
				}
				if !stall {
					write.Close()
				}
			}()
			resp, err := r.client.Post(r.url+chat, "application/json", read)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			read.Close()
			if want := map[bool]int{true: 408, false: 200}[stall]; resp.StatusCode != want {
				t.Errorf("stall %v: status %d, want %d", stall, resp.StatusCode, want)
			}
		})
	}
}

// TestBodiesMustComeAtSomeRate: a client that never pauses for long but would
// take for ever is told so; one whose worker takes its time, or which is slow
// but in earnest, is not.
func TestBodiesMustComeAtSomeRate(t *testing.T) {
	for name, c := range map[string]struct {
		first  int // bytes
		piece  int
		every  time.Duration
		status int
		within time.Duration
	}{
		"a byte just before the idle limit": {0, 1, 29 * time.Second, 408, time.Minute},
		"a byte a second":                   {0, 1, time.Second, 408, time.Minute},
		"half the rate":                     {0, 512, time.Second, 408, 2 * time.Minute},
		"much, then hardly any":             {150 << 10, 1, 29 * time.Second, 408, 2 * time.Minute},
		"twice the rate":                    {0, 2048, time.Second, 200, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := memRig(t, Config{}, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
			read, write := io.Pipe()
			body := plainBody + strings.Repeat(" ", 200<<10)
			var client sync.WaitGroup
			client.Go(func() {
				if _, err := io.WriteString(write, body[:c.first]); err != nil {
					return
				}
				for at := c.first; at < len(body); at += c.piece {
					time.Sleep(c.every) // virtual
					if _, err := io.WriteString(write, body[at:min(at+c.piece, len(body))]); err != nil {
						return
					}
				}
				write.Close()
			})
			begun := time.Now()
			resp, err := r.client.Post(r.url+chat, "application/json", read)
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begun); resp.StatusCode != c.status || d > c.within {
				t.Errorf("%s: status %d after %v, want %d within %v", name, resp.StatusCode, d, c.status, c.within)
			}
			resp.Body.Close()
			read.Close()
			client.Wait()
		})
	}
}

// TestWorkersSlownessIsNotTheClients: what a body waits for a worker that reads
// slowly does not count as the client's time.
func TestWorkersSlownessIsNotTheClients(t *testing.T) {
	r := &rest{body: strings.NewReader("x"), control: http.NewResponseController(httptest.NewRecorder()), rate: 1 << 10, left: 1 << 20, idle: time.Second}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour) // virtual: nobody reads
		if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil || r.late != 0 {
			t.Errorf("%d, %v, late by %v", n, err, r.late)
		}
	})
}

// TestRestrictedCallersBodiesAreReadToTheEnd: of two models that a body names
// the last counts, for what a caller may use too.
func TestRestrictedCallersBodiesAreReadToTheEnd(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{ReplayBytes: minReplayBytes, Keys: []KeyConfig{{Name: "a", SHA256: hashOf("k"), Models: []string{"m"}}}}, w)
	body := `{"model":"m","x":"` + strings.Repeat("x", 2*minReplayBytes) + `"`
	if a := r.post(chat, body+`,"model":"org/n"}`, "Authorization: Bearer k"); a.status != 403 {
		t.Errorf("another model at the end gave %+v", a)
	}
	if a := r.post(chat, body+`}`, "Authorization: Bearer k"); a.status != 200 {
		t.Errorf("its own model gave %+v", a)
	}
}

// TestMemoryGoesBackWhenTheAnswerBegins: a long answer holds no body, however
// large; before it there may still be another attempt.
func TestMemoryGoesBackWhenTheAnswerBegins(t *testing.T) {
	for name, c := range map[string]struct {
		encoding string
		body     string
	}{
		"held":     {"", streamBody + strings.Repeat(" ", 200<<10)},
		"encoded":  {"gzip", packed(t, "gzip", streamBody)},
		"streamed": {"", streamBody + strings.Repeat(" ", 5*minReplayBytes)},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, more := make(chan struct{}), make(chan struct{})
			r := memRig(t, Config{ReplayBytes: 256 << 10}, testkit.Script{testkit.Wait(begin),
				testkit.Send(testkit.SSEHead(), testkit.Chunk("data: 1\n\n")), testkit.Wait(more),
				testkit.Send(testkit.Chunk("data: [DONE]\n\n"), testkit.LastChunk())})
			go func() {
				synctest.Wait()
				if r.g.buffered.Load() == 0 {
					t.Errorf("%s: the body is not held while it may be needed", name)
				}
				close(begin)
			}()
			req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+chat, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.encoding != "" {
				req.Header.Set("Content-Encoding", c.encoding)
			}
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := r.g.buffered.Load(); n != 0 {
				t.Errorf("%s: %d bytes are held during the answer", name, n)
			}
			close(more)
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "data: 1\n\ndata: [DONE]\n\n" {
				t.Errorf("%s: got %q, %v", name, b, err)
			}
			resp.Body.Close()
		})
	}
}
