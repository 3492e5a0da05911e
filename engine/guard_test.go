package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/engine/zmtp"
)

// TestBR05_WhatMayBeAWorker checks hosts when workers are made.
func TestBR05_WhatMayBeAWorker(t *testing.T) {
	for _, c := range []struct {
		hosts string
		url   string
		ok    bool
	}{
		{"", "http://127.0.0.1:8000", true},
		{"", "http://worker:8000", true},
		{"", "http://169.254.169.254", false},
		{"", "http://[fe80::1]:80", false},
		{"", "http://0.0.0.0:80", false},
		{"", "http://[::ffff:169.254.169.254]", false},
		{"", "http://224.0.0.1", false},
		{"", "file:///etc/passwd", false},
		{"", "http://user:pw@host/", false},
		{"", "http://host/path", false},
		{"10.0.0.0/8", "http://10.1.2.3:80", true},
		{"10.0.0.0/8", "http://11.1.2.3:80", false},
		{"10.0.0.0/8", "http://127.0.0.1:80", false},
		{"10.0.0.0/8", "http://name:80", true}, // its addresses will be checked
		{"gpu-1 *.workers.example", "http://gpu-1:80", true},
		{"gpu-1 *.workers.example", "http://a.WORKERS.example:80", true},
		{"gpu-1 *.workers.example", "http://workers.example:80", false},
		{"gpu-1 *.workers.example", "http://xworkers.example:80", false},
		{"gpu-1 *.workers.example", "http://gpu-2:80", false},
		{"169.254.0.0/16", "http://169.254.1.1:80", true},
	} {
		g := Guard{Hosts: strings.Fields(c.hosts)}
		if err := g.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := g.NewWorker("c", Spec{URL: c.url}); (err == nil) != c.ok {
			t.Errorf("hosts %q: %s gave %v", c.hosts, c.url, err)
		}
	}
	for _, bad := range []string{"", "*.", "a b", "10.0.0.0/99", "http://h"} {
		if (Guard{Hosts: []string{bad}}).Validate() == nil {
			t.Errorf("%q is a valid host", bad)
		}
	}
}

// TestBR05_AddressesAreCheckedWhenDialled: a name that leads elsewhere than it
// may is not connected to.
func TestBR05_AddressesAreCheckedWhenDialled(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, c := range []struct {
		hosts string
		ok    bool
	}{{"", true}, {"localhost", true}, {"127.0.0.0/8 ::1/128", true}, {"10.0.0.0/8", false}} {
		w, err := Guard{Hosts: strings.Fields(c.hosts)}.NewWorker("c", Spec{URL: "http://localhost:" + port})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.get(t.Context(), "/", 100)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, ErrForbidden) || !errors.Is(err, ErrConnect)) {
			t.Errorf("hosts %q: %v", c.hosts, err)
		}
		w.Close()
	}
	loop := Guard{Hosts: []string{"public.example"}}
	if err := loop.dialer("public.example").Control("tcp4", "127.0.0.1:80", nil); !errors.Is(err, ErrForbidden) {
		t.Errorf("a name that leads to loopback gave %v", err)
	}
	if err := loop.checkAddr(netip.MustParseAddr("93.184.216.34"), true); err != nil {
		t.Errorf("a name that leads to its address gave %v", err)
	}
}

// TestWorkerTokenAndProtocol: the worker's own token replaces what a request
// has, goes with probes as well, and is printed nowhere; h2c is spoken where
// the spec says so; redirects aren't followed.
func TestWorkerTokenAndProtocol(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Seen", r.Proto+" "+r.Header.Get("Authorization"))
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
			return
		}
		io.WriteString(w, `{"data":[{"id":"m"}]}`)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	for proto, h2c := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		w, err := NewWorker("c", Spec{URL: server.URL, Token: "s3cret", H2C: h2c})
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://elsewhere/away", nil)
		req.Header.Set("Authorization", "Bearer theirs")
		heard := w.Heard()
		resp, err := w.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if got := resp.Header.Get("Seen"); got != proto+" Bearer s3cret" || resp.StatusCode != 302 || req.Header.Get("Authorization") != "Bearer theirs" {
			t.Errorf("the worker saw %q, status %d", got, resp.StatusCode)
		}
		if w.Heard() == heard {
			t.Error("an answer was not heard")
		}
		heard = w.Heard()
		if models, err := w.Models(t.Context()); err != nil || len(models) != 1 || w.Heard() != heard {
			t.Errorf("models %v, %v; a probe is no answer to a request", models, err)
		}
		if strings.Contains(w.Spec.String(), "s3cret") {
			t.Error("the spec shows its token")
		}
		w.Close()
	}
	for _, bad := range []Spec{{URL: "https://h", H2C: true}, {URL: "http://h", Token: "a\nb"}} {
		if _, err := bad.Canonical(); err == nil {
			t.Errorf("%v is valid", bad)
		}
	}
	if spec, err := ParseSpec("http://h:80,h2c=true"); err != nil || !spec.H2C || spec.String() != "http://h:80,h2c=true" {
		t.Errorf("%v, %v", spec, err)
	}
	if _, err := ParseSpec("http://h:80,token=x"); err == nil {
		t.Error("a line of text holds a token")
	}
}

// TestBR05_SocketsOfEventsAreGuarded when a worker is made, and again when they
// are dialled.
func TestBR05_SocketsOfEventsAreGuarded(t *testing.T) {
	for _, c := range []struct {
		hosts, events, replay string
		ok                    bool
	}{
		{"", "tcp://w:5557", "tcp://w:5558", true},
		{"", "tcp://169.254.169.254:80", "", false},
		{"", "tcp://w:5557", "tcp://[fe80::1]:80", false},
		{"", "tcp://w:5557", "tcp://0.0.0.0:80", false},
		{"w", "tcp://w:5557", "tcp://w:5558", true},
		{"w", "tcp://other:5557", "", false},
		{"w", "tcp://w:5557", "tcp://127.0.0.1:8081", false},
		{"w", "tcp://*:5557", "", true}, // the engine dials in
		{"w 10.0.0.0/8", "tcp://10.1.1.1:5557", "", true},
		{"w 10.0.0.0/8", "tcp://11.1.1.1:5557", "", false},
	} {
		g := Guard{Hosts: strings.Fields(c.hosts)}
		_, err := g.NewWorker("c", Spec{URL: "http://w:80", Events: c.events, Replay: c.replay})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%+v gave %v", c, err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	endpoint := "tcp://127.0.0.1:" + port
	g := Guard{Hosts: []string{"10.0.0.0/8"}}
	f := NewFeed(FeedConfig{Events: endpoint, Replay: "tcp://127.0.0.1:" + port, Guard: g})
	connect, done, err := f.connector(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := connect(); !errors.Is(err, ErrForbidden) {
		t.Errorf("events were dialled: %v", err)
	}
	if _, _, err := f.fetch(t.Context(), 0); !errors.Is(err, ErrForbidden) {
		t.Errorf("the replay was dialled: %v", err)
	}
	w, err := g.NewWorker("c", Spec{URL: "http://10.0.0.1:80"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.probe(t.Context(), endpoint, zmtp.SUB); !errors.Is(err, ErrForbidden) {
		t.Errorf("a socket was tried: %v", err)
	}
}

// TestBR05_TheRoutersOwnPortsAreNoWorkers: not when one is named by address, and
// not when a name turns out to lead there.
func TestBR05_TheRoutersOwnPortsAreNoWorkers(t *testing.T) {
	asked := false
	own := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer own.Close()
	at := netip.MustParseAddrPort(own.Listener.Addr().String())
	g := Guard{Own: func(a netip.AddrPort) bool { return a == at }}
	if _, err := g.NewWorker("c", Spec{URL: own.URL}); !errors.Is(err, ErrForbidden) {
		t.Errorf("by its address: %v", err)
	}
	w, err := g.NewWorker("c", Spec{URL: fmt.Sprintf("http://localhost:%d", at.Port())})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Models(t.Context()); !errors.Is(err, ErrForbidden) || asked {
		t.Errorf("by a name: %v", err)
	}
}
