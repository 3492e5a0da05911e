package engine

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestBR45_ADeadSharedConnectionIsNoticed: one connection of HTTP/2 carries all
// requests, and its network falls silent without a reset. All of them end, and
// once there is a way again the next goes by a new connection. A worker that is
// slow to answer, but there, is left in peace.
func TestBR45_ADeadSharedConnectionIsNoticed(t *testing.T) {
	arrived, answer := make(chan struct{}, 64), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			select {
			case <-answer:
			case <-r.Context().Done():
				return
			}
		}
		io.WriteString(w, "ok")
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	link := testkit.NewLink(t)
	addr := strings.TrimPrefix(server.URL, "http://")
	w, err := NewWorker("c", Spec{URL: "http://" + link.TCP(t, addr), H2C: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if c := w.transport.HTTP2; c.SendPingTimeout+c.PingTimeout > 30*time.Second {
		t.Errorf("a dead connection is noticed after %v", c.SendPingTimeout+c.PingTimeout)
	}
	const ping = 100 * time.Millisecond // so that the test needn't last that long
	w.transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: 5 * ping}
	get := func(path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://w"+path, nil)
		if err != nil {
			return "", err
		}
		resp, err := w.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	slow := make(chan error, 1)
	go func() { _, err := get("/slow"); slow <- err }()
	<-arrived
	time.AfterFunc(4*ping, func() { close(answer) }) // longer than pings go unsent
	if err := <-slow; err != nil {
		t.Errorf("a slow first byte ended with %v", err)
	}

	answer = make(chan struct{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if body, err := get("/slow"); err == nil {
				t.Errorf("over a dead connection came %q", body)
			}
		})
	}
	for range 20 {
		<-arrived
	}
	link.Cut(testkit.Both...)
	wg.Wait()
	link.Heal(testkit.Both...)
	if body, err := get("/"); err != nil || body != "ok" {
		t.Errorf("by a new connection: %q, %v", body, err)
	}
}
