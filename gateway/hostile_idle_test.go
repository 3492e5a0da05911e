package gateway_test

import (
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestHostile_IdleConnections opens ten thousand connections, or as many as
// file descriptors allow, half of them after a served request, and lets them
// lie. Each costs little, and others are served.
func TestHostile_IdleConnections(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	count := min(10_000, int(min(limit.Cur, 1<<20))/2-200) // both ends are in this process
	if count < 100 {
		t.Fatalf("only %d file descriptors: raise the limit", limit.Cur)
	}
	f := newFront(t, gateway.Config{}, newSink(t).url)
	addr := strings.TrimPrefix(f.url, "http://")
	used := func() int64 {
		heap := testkit.LiveHeap()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return heap + int64(m.StackInuse)
	}
	before := used()
	conns := make([]net.Conn, 0, count)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	const head = "HTTP/1.1 200"
	first := make([]byte, 4<<10)
	for i := range count {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		if i%2 == 0 {
			continue
		}
		if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if n, err := c.Read(first); err != nil || !strings.HasPrefix(string(first[:n]), head) {
			t.Fatalf("connection %d got %q, %v", i, first[:n], err)
		}
	}
	n := newNeighbour(t, f)
	each := (used() - before) / int64(count)
	n.wasServed(t)
	if each > 40<<10 {
		t.Errorf("an idle connection holds %d bytes", each)
	}
	t.Logf("%d connections hold %d bytes each, both ends", count, each)
}
