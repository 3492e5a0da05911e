package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// benchModel is what the workers of a bench serve.
const benchModel = "bench"

// benchGround is what a bench runs on: workers that answer at once, a relay
// and a router before them, and the requests to send.
type benchGround struct {
	addrs    [ways]string              // host:port
	requests [len(benchSizes)][][]byte // whole requests, several of each size
	closers  []func()
}

// benchWorkers is how many workers the router chooses from.
const benchWorkers = 4

func newBenchGround(ctx context.Context, cfg BenchConfig) (*benchGround, error) {
	g := &benchGround{}
	var lines []string
	for range benchWorkers {
		addr, err := g.serve(http.HandlerFunc(benchWorker))
		if err != nil {
			g.close()
			return nil, err
		}
		lines = append(lines, "http://"+addr+",engine=vllm")
		g.addrs[wayDirect] = addr
	}
	upstream := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1024, ReadBufferSize: 32 << 10, WriteBufferSize: 32 << 10}
	g.closers = append(g.closers, upstream.CloseIdleConnections)
	var err error
	if g.addrs[wayRelay], err = g.serve(relayTo(g.addrs[wayDirect], upstream)); err != nil {
		g.close()
		return nil, err
	}
	router, err := cfg.StartRouter(ctx, lines)
	if err != nil {
		g.close()
		return nil, err
	}
	if router.Close != nil {
		g.closers = append(g.closers, func() { router.Close() })
	}
	g.addrs[wayRouter] = strings.TrimPrefix(router.URL, "http://")
	for i, size := range benchSizes {
		for n := range 32 {
			g.requests[i] = append(g.requests[i], benchRequest(size, n))
		}
	}
	return g, nil
}

// serve serves h on a loopback port until close.
func (g *benchGround) serve(h http.Handler) (addr string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("open a port for the bench: %w", err)
	}
	s := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(ln) })
	g.closers = append(g.closers, func() { s.Close(); wg.Wait() })
	return ln.Addr().String(), nil
}

func (g *benchGround) close() {
	for i := len(g.closers) - 1; i >= 0; i-- {
		g.closers[i]()
	}
}

// benchAnswer is what a worker answers.
const benchAnswer = `{"id":"x","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant",` +
	`"content":"an answer of some words"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":6,"total_tokens":1006}}`

// benchWorker is a worker that does nothing but answer, as vLLM would.
func benchWorker(w http.ResponseWriter, r *http.Request) {
	body := benchAnswer
	switch r.URL.Path {
	case "/v1/models":
		body = `{"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"x"}]}`
	case "/version":
		body = `{"version":"0.11.0"}`
	case "/health":
		body = ""
	case "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		body = ""
	default:
		io.Copy(io.Discard, r.Body)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	io.WriteString(w, body)
}

// relayTo is the smallest relay to an address: it copies and reads nothing.
func relayTo(addr string, upstream http.RoundTripper) http.Handler {
	buffers := sync.Pool{New: func() any { return new([32 << 10]byte) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.WithContext(r.Context()) // a shallow copy
		u := *r.URL
		u.Scheme, u.Host = "http", addr
		out.URL, out.RequestURI = &u, ""
		resp, err := upstream.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		buffer := buffers.Get().(*[32 << 10]byte)
		defer buffers.Put(buffer)
		// The bench's client sees what is missing.
		_, _ = io.CopyBuffer(struct{ io.Writer }{w}, resp.Body, buffer[:])
	})
}

// benchRequest is a whole chat request with a body of size bytes: a system
// prompt and turns, n deciding the words.
func benchRequest(size, n int) []byte {
	random := clock.Rand(uint64(n), fmt.Sprint("bench body of ", size))
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var messages []message
	total := 0
	for total < size {
		var words strings.Builder
		for words.Len() < min(2000, size/4) {
			words.WriteString(benchWords[random.IntN(len(benchWords))])
			words.WriteByte(' ')
		}
		role := []string{"user", "assistant"}[len(messages)%2]
		messages = append(messages, message{role, words.String()})
		total += words.Len() + 40
	}
	messages[0].Role = "system"
	body, err := json.Marshal(map[string]any{"model": benchModel, "messages": messages, "max_tokens": 16, "temperature": 0.7})
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	return append([]byte(head), body...)
}

var benchWords = strings.Fields(`a request goes where its prompt has been seen before and the queue is short "quoted" the
answer\n comes back over one wire word by word naïve grüße 東京 function return if err != nil { } data 12345 tool_call`)

// benchConn is a client: a connection that stays open.
type benchConn struct {
	net.Conn
	br *bufio.Reader
}

func dialBench(ctx context.Context, addr string) (*benchConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &benchConn{c, bufio.NewReader(c)}, nil
}

// ask sends a request and reads its answer, which must be the worker's.
func (c *benchConn) ask(request []byte) error {
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(request); err != nil {
		return fmt.Errorf("send a request: %w", err)
	}
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK || body.Len() != len(benchAnswer) {
		return fmt.Errorf("an answer of %s: %.200s", resp.Status, body.Bytes())
	}
	return nil
}
