package engine

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
)

// placed is a body of which the first part lies in memory.
type placed struct {
	io.Reader
	memory []byte
	wrote  int
}

func (p *placed) Read(b []byte) (int, error) {
	if len(p.memory) > 0 {
		n := copy(b, p.memory)
		p.memory = p.memory[n:]
		return n, nil
	}
	return p.Reader.Read(b)
}

func (p *placed) Close() error { return nil }

func (p *placed) WritePlaced(w io.Writer, most int64) (int64, error) {
	n, err := w.Write(p.memory[:min(int64(len(p.memory)), most)])
	p.memory, p.wrote = p.memory[n:], p.wrote+n
	return int64(n), err
}

// TestBodiesAreSentFromWhereTheyLie, whole and in order, whatever of them lies
// in memory.
func TestBodiesAreSentFromWhereTheyLie(t *testing.T) {
	got := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- b
	}))
	defer server.Close()
	transport := newTransport(new(net.Dialer), new(atomic.Pointer[netip.AddrPort]))
	defer transport.CloseIdleConnections()
	want := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	for _, inMemory := range []int{0, 1, 100, 64 << 10, len(want) - 1, len(want)} {
		for _, length := range []int64{int64(len(want)), -1} {
			p := &placed{bytes.NewReader(want[inMemory:]), want[:inMemory], 0}
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL, p)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = length
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if !bytes.Equal(<-got, want) {
				t.Errorf("%d bytes in memory, length %d: not what was sent", inMemory, length)
			}
			if length > 0 && inMemory == len(want) && p.wrote < len(want)/2 {
				t.Errorf("%d of %d bytes were sent from where they lie", p.wrote, len(want))
			}
		}
	}
}
