package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/gateway"
)

// sink is a worker that reads everything, keeps nothing and says it is well.
type sink struct {
	url      string
	requests atomic.Int64
	paths    sync.Map // path → true
}

func newSink(t testing.TB) *sink {
	s := &sink{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		s.paths.Store(r.URL.Path, true)
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"ok":true}`)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// neighbour is a well-behaved client that asks all the time.
type neighbour struct {
	stop   chan struct{}
	wg     sync.WaitGroup
	served int
	failed []string
}

// newNeighbour starts a client that sends a small request every few
// milliseconds on one connection.
func newNeighbour(t testing.TB, f *front) *neighbour {
	n := &neighbour{stop: make(chan struct{})}
	transport := &http.Transport{DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	n.wg.Go(func() {
		defer transport.CloseIdleConnections()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if problem := askOnce(client, f.url); problem == "" {
				n.served++
			} else {
				n.failed = append(n.failed, problem)
			}
			select {
			case <-tick.C:
			case <-n.stop:
				return
			}
		}
	})
	return n
}

// askOnce sends a plain request and says what went wrong.
func askOnce(client *http.Client, url string) string {
	resp, err := client.Post(url+chatPath, "application/json", strings.NewReader(asked))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
		return fmt.Sprintf("%s %s %v", resp.Status, body, err)
	}
	return ""
}

// wasServed ends the neighbour, none of whose requests may have failed.
func (n *neighbour) wasServed(t testing.TB) {
	t.Helper()
	close(n.stop)
	n.wg.Wait()
	if n.served == 0 || len(n.failed) > 0 {
		t.Errorf("the well-behaved client was served %d times and not %d times, first: %.200q", n.served, len(n.failed), append(n.failed, "")[0])
	}
}

// repeated reads head, then filler as often as it takes, then tail, n bytes in
// all, without holding them.
func repeated(head, filler, tail string, n int64) io.Reader {
	middle := n - int64(len(head)) - int64(len(tail))
	return io.MultiReader(strings.NewReader(head), io.LimitReader(&cycle{text: filler}, middle), strings.NewReader(tail))
}

type cycle struct {
	text string
	at   int
}

func (c *cycle) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], c.text[c.at:])
		n, c.at = n+m, (c.at+m)%len(c.text)
	}
	return n, nil
}

// chatOf is a chat request of n bytes.
func chatOf(n int64) io.Reader {
	return repeated(`{"model":"m","messages":[{"role":"user","content":"`, strings.Repeat("many words ", 3000), `"}]}`, n)
}

// smallLimits are a configuration whose limits a test can reach.
var smallLimits = gateway.Config{MaxBodyBytes: 31 << 20, BufferBudgetBytes: 64 << 20}
