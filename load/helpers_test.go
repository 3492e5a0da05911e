package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryNet connects a transport to handlers by host name, without sockets, so
// that whole fleets run inside a synctest bubble.
type memoryNet struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	servers   []*http.Server
	wg        sync.WaitGroup
}

func newMemoryNet() *memoryNet { return &memoryNet{listeners: make(map[string]*memoryListener)} }

func (n *memoryNet) serve(host string, h http.Handler) {
	l := &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	handle := func(w http.ResponseWriter, r *http.Request) {
		n.wg.Add(1) // below the server's own, so never from zero
		defer n.wg.Done()
		h.ServeHTTP(w, r)
	}
	srv := &http.Server{Handler: http.HandlerFunc(handle), ErrorLog: log.New(io.Discard, "", 0)}
	n.mu.Lock()
	n.listeners[host+":80"] = l
	n.servers = append(n.servers, srv)
	n.mu.Unlock()
	n.wg.Go(func() { _ = srv.Serve(l) })
}

func (n *memoryNet) transport() *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: 100,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			n.mu.Lock()
			l := n.listeners[addr]
			n.mu.Unlock()
			if l == nil {
				return nil, fmt.Errorf("no listener at %s", addr)
			}
			near, far := net.Pipe()
			select {
			case l.conns <- far:
				return near, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
}

func (n *memoryNet) close() {
	for _, s := range n.servers {
		s.Close()
	}
	n.wg.Wait()
}

type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// asked is what a fake worker saw of one request.
type asked struct {
	Path     string
	At       time.Time
	Body     string
	workflow string
	Model    string `json:"model"`
	Messages []struct{ Role, Content string }
	Prompt   []uint32
	Max      int `json:"max_tokens"`
	Stream   bool
}

// fakeWorker answers like an engine after fixed delays.
type fakeWorker struct {
	ttft, tpot time.Duration
	cached     int               // cached tokens told; < 0: nothing told
	headers    map[string]string // of every answer
	answer     func(w http.ResponseWriter, r *http.Request, a *asked) bool

	mu   sync.Mutex
	seen []asked
}

func (f *fakeWorker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"fake-7b"}]}`)
		return
	}
	body, _ := io.ReadAll(r.Body)
	a := asked{Path: r.URL.Path, At: time.Now(), Body: string(body), workflow: r.Header.Get("x-agent-workflow-id")}
	if err := json.Unmarshal(body, &a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	f.seen = append(f.seen, a)
	f.mu.Unlock()
	for k, v := range f.headers {
		w.Header().Set(k, v)
	}
	if f.answer != nil && f.answer(w, r, &a) {
		return
	}
	f.stream(w, r, &a)
}

func (f *fakeWorker) stream(w http.ResponseWriter, r *http.Request, a *asked) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(w, "data: "+format+"\n\n", args...)
		w.(http.Flusher).Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	say(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`)
	wait(f.ttft)
	for k := range a.Max {
		if k > 0 {
			wait(f.tpot)
		}
		if a.Prompt != nil {
			say(`{"choices":[{"index":0,"text":" w%d","token_ids":[%d]}]}`, k, 5000+k)
		} else {
			say(`{"choices":[{"index":0,"delta":{"content":" w%d"}}],"usage":null}`, k)
		}
	}
	details := ""
	if f.cached >= 0 {
		details = fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%d}`, f.cached)
	}
	say(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d%s}}`, f.promptTokens(a), a.Max, details)
	say("[DONE]")
}

func (f *fakeWorker) promptTokens(a *asked) int {
	n := len(a.Prompt)
	for _, m := range a.Messages {
		n += (len(m.Content) + 3) / 4
	}
	return n
}

func (f *fakeWorker) requests() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

func containsAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}
