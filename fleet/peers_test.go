package fleet_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

// peer is a registry in a mesh in memory, of a fleet that nobody runs.
type peer struct {
	*fleet.Registry
	fleet *fleet.Fleet
	node  *mesh.Node
	log   *logged
	stop  func()
}

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newPeer has one more replica be in the mesh, on a host of its own.
func newPeer(t *testing.T, net *transport.Network, host int, cfg fleet.Config) *peer {
	t.Helper()
	p := &peer{log: &logged{}}
	log := slog.New(slog.NewTextHandler(p.log, nil))
	mc := mesh.Config{Peers: []string{"10.0.0.1:7400"}, Transport: transport.Config{Cluster: "pond", Secrets: []string{strings.Repeat("0123456789abcdef", 3)}}}
	e, err := net.Listen(fmt.Sprintf("10.0.0.%d:7400", host), mc.Transport, transport.Options{Boot: fmt.Sprintf("r%d-%d", host, time.Now().UnixNano())})
	if err != nil {
		t.Fatal(err)
	}
	if p.node, err = mesh.New(mc, mesh.Deps{Endpoint: e, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Seed: uint64(host)}); err != nil {
		t.Fatal(err)
	}
	p.fleet, err = fleet.New(cfg, fleet.Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: clock.Real(), Log: log, Mesh: p.node},
		nil, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	p.Registry = fleet.NewRegistry(p.fleet)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	wg.Go(func() {
		if err := p.node.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	p.stop = func() { cancel(); wg.Wait() }
	return p
}

// inPond runs f in virtual time, with a network that it may have peers on.
func inPond(t *testing.T, f func(net *transport.Network)) {
	synctest.Test(t, func(t *testing.T) {
		net := transport.NewNetwork(1)
		net.Faulty(transport.Faults{Delay: time.Millisecond})
		defer func() { net.Close(); time.Sleep(10 * time.Second) }() // a probe of membership may outlive it
		f(net)
	})
}

// awaitListed waits in virtual time until a fleet is what is wanted.
func (p *peer) awaitListed(t *testing.T, want ...string) {
	t.Helper()
	for range 500 {
		if strings.Join(listed(p.fleet), "\n") == strings.Join(want, "\n") {
			return
		}
		time.Sleep(10 * time.Millisecond) // of the bubble
	}
	same(t, p.fleet, want...)
	s := p.node.State()
	t.Logf("%s knows %+v, was sent %v", s.Replica, s.Members, s.SentBytes)
}

func idOf(name string) kv.WorkerID { return kv.WorkerIDOf("default", name) }

// What one replica lists is in the fleets of all, behind what these list
// themselves, for as long as that replica lives or a minute longer.
func TestPeersShareWhatTheyList(t *testing.T) {
	inPond(t, func(net *transport.Network) {
		a, b := newPeer(t, net, 1, fleet.Config{}), newPeer(t, net, 2, fleet.Config{})
		defer a.stop()
		if err := a.SetStatic([]engine.Spec{{URL: "http://a:1"}, {URL: "http://both:1"}, {URL: "http://secret:1", Token: "t0ken"}, {URL: "http://localhost:1"}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := b.SetStatic([]engine.Spec{{URL: "http://both:1", Model: "mine"}}, []string{"kubernetes:k"}); err != nil {
			t.Fatal(err)
		}
		b.Sink("kubernetes:k").Found([]discover.Found{{Spec: engine.Spec{URL: "http://b:1", ID: "ns/b:1"}, Instance: "uid/0", Draining: true, Why: "terminating"}})
		// What wants a token, or is on another host's loopback, is not for others.
		b.awaitListed(t, "both:1 config+peers suspect ", "b:1 kubernetes:k draining terminating", "a:1 peers suspect ")
		a.awaitListed(t, "a:1 config suspect ", "both:1 config+peers suspect ", "secret:1 config suspect ", "localhost:1 config suspect ", "b:1 peers draining another replica")
		if m := b.fleet.View().Members[0]; m.Worker.Spec.Model != "mine" {
			t.Errorf("a peer's word went before our own: %v", m.Worker.Spec)
		}
		b.Sink("kubernetes:k").Found(nil)
		a.awaitListed(t, "a:1 config suspect ", "both:1 config+peers suspect ", "secret:1 config suspect ", "localhost:1 config suspect ")
		b.Sink("kubernetes:k").Found([]discover.Found{at("http://b:1", "ns/b:1")})
		withB := []string{"a:1 config suspect ", "both:1 config+peers suspect ", "secret:1 config suspect ", "localhost:1 config suspect ", "b:1 peers suspect "}
		a.awaitListed(t, withB...)
		b.stop()
		time.Sleep(50 * time.Second)
		same(t, a.fleet, withB...)
		time.Sleep(20 * time.Second)
		same(t, a.fleet, "a:1 config suspect ", "both:1 config suspect ", "secret:1 config suspect ", "localhost:1 config suspect ")
		if strings.Contains(a.log.String()+b.log.String(), "t0ken") {
			t.Error("a log shows a token")
		}
	})
}

// What operators decide at one replica holds at all, also at one that comes
// later, and so does its undoing; the later of two decisions stays.
func TestPeersObeyOneOperator(t *testing.T) {
	inPond(t, func(net *transport.Network) {
		specs := []engine.Spec{{URL: "http://a:1"}, {URL: "http://b:1"}}
		a, b := newPeer(t, net, 1, fleet.Config{}), newPeer(t, net, 2, fleet.Config{})
		defer a.stop()
		defer b.stop()
		for _, p := range []*peer{a, b} {
			if err := p.SetStatic(specs, nil); err != nil {
				t.Fatal(err)
			}
		}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		a.awaitListed(t, "a:1 config+peers suspect ", "b:1 config+peers suspect ")
		do(a.SetDraining(idOf("http://a:1"), true))
		b.awaitListed(t, "a:1 config+peers draining admin", "b:1 config+peers suspect ")
		do(b.Remove(idOf("http://b:1")))
		_, err := b.Add(engine.Spec{URL: "http://c:1", Model: "m"})
		do(err)
		a.awaitListed(t, "c:1 admin suspect ", "a:1 config+peers draining admin")
		if d := a.Describe(); len(d.Added) != 1 || len(d.Removed) != 1 || len(d.Drained) != 1 {
			t.Errorf("decided: %+v", d)
		}
		late := newPeer(t, net, 3, fleet.Config{})
		defer late.stop()
		do(late.SetStatic(specs, nil))
		late.awaitListed(t, "c:1 admin suspect ", "a:1 config+peers draining admin")

		// Undone by whoever: at b what a decided, at a what b did.
		do(b.SetDraining(idOf("http://a:1"), false))
		do(a.Remove(idOf("http://c:1")))
		_, err = late.Add(engine.Spec{URL: "http://b:1"})
		do(err)
		for _, p := range []*peer{a, b, late} {
			p.awaitListed(t, "a:1 config+peers suspect ", "b:1 config+peers suspect ")
		}
		// A worker with a token, or on this host's loopback, is added here alone,
		// and what others decide does not undo it.
		_, err = a.Add(engine.Spec{URL: "http://t:1", Token: "t"})
		do(err)
		_, err = a.Add(engine.Spec{URL: "http://127.0.0.1:1"})
		do(err)
		do(b.SetDraining(idOf("http://b:1"), true))
		a.awaitListed(t, "t:1 admin suspect ", "127.0.0.1:1 admin suspect ", "a:1 config+peers suspect ", "b:1 config+peers draining admin")
		late.awaitListed(t, "a:1 config+peers suspect ", "b:1 config+peers draining admin")
		do(late.SetDraining(idOf("http://b:1"), false))
		for _, p := range []*peer{b, late} {
			p.awaitListed(t, "a:1 config+peers suspect ", "b:1 config+peers suspect ")
		}
		a.awaitListed(t, "t:1 admin suspect ", "127.0.0.1:1 admin suspect ", "a:1 config+peers suspect ", "b:1 config+peers suspect ")
	})
}

// Decisions made on both sides of a partition are the same on all when it has
// healed: for each worker, one of those that were made last.
func TestPeersAgreeAfterAPartition(t *testing.T) {
	inPond(t, func(net *transport.Network) {
		specs := []engine.Spec{{URL: "http://a:1"}, {URL: "http://b:1"}}
		a, b := newPeer(t, net, 1, fleet.Config{}), newPeer(t, net, 2, fleet.Config{})
		defer a.stop()
		defer b.stop()
		for _, p := range []*peer{a, b} {
			if err := p.SetStatic(specs, nil); err != nil {
				t.Fatal(err)
			}
		}
		a.awaitListed(t, "a:1 config+peers suspect ", "b:1 config+peers suspect ")
		one, two := netip.MustParseAddrPort("10.0.0.1:7400"), netip.MustParseAddrPort("10.0.0.2:7400")
		net.Partition([]netip.AddrPort{one}, []netip.AddrPort{two})
		time.Sleep(20 * time.Second)
		for _, err := range []error{
			a.SetDraining(idOf("http://a:1"), true),
			b.SetDraining(idOf("http://a:1"), true), b.SetDraining(idOf("http://a:1"), false), // decided later
			b.Remove(idOf("http://b:1")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		net.Heal()
		for _, p := range []*peer{a, b} {
			p.awaitListed(t, "a:1 config+peers suspect ")
		}
	})
}

// Records of peers pass the same checks as any worker's: hosts that are not
// allowed, the router's own ports and metadata services are refused, one line of
// log each; and so is what is added at a peer.
func TestBR05_WhatPeersTellIsChecked(t *testing.T) {
	inPond(t, func(net *transport.Network) {
		own := netip.MustParseAddrPort("10.0.0.2:8081")
		loose, strict := newPeer(t, net, 1, fleet.Config{}), newPeer(t, net, 2, fleet.Config{Guard: engine.Guard{
			Hosts: []string{"*.pool", "10.0.0.2"}, Own: func(a netip.AddrPort) bool { return a == own },
		}})
		defer loose.stop()
		defer strict.stop()
		if err := loose.SetStatic([]engine.Spec{{URL: "http://w.pool:1"}, {URL: "http://evil:1"}, {URL: "http://" + own.String()}}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := loose.Add(engine.Spec{URL: "http://192.0.2.1:1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := loose.Add(engine.Spec{URL: "http://added.pool:1"}); err != nil {
			t.Fatal(err)
		}
		strict.awaitListed(t, "added.pool:1 admin suspect ", "w.pool:1 peers suspect ")
		d := strict.Describe()
		peers := d.Sources[len(d.Sources)-1]
		if peers.Name != "peers" || peers.Workers != 1 || len(peers.Refused) != 2 {
			t.Errorf("sources %+v", d.Sources)
		}
		for _, bad := range []string{"evil:1", own.String(), "192.0.2.1:1"} {
			if n := strings.Count(strict.log.String(), "worker=http://"+bad); n != 1 {
				t.Errorf("%d lines of log on %s:\n%s", n, bad, strict.log.String())
			}
		}
	})
}

// Neither tokens of workers nor what else is secret is on what peers are sent.
func TestBR06_PeersAreToldNoSecret(t *testing.T) {
	inPond(t, func(net *transport.Network) {
		p := newPeer(t, net, 1, fleet.Config{})
		defer p.stop()
		if err := p.SetStatic([]engine.Spec{{URL: "http://a:1"}, {URL: "http://t:1", Token: "c4nary"}}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Add(engine.Spec{URL: "http://added:1", Token: "c4nary"}); err != nil {
			t.Fatal(err)
		}
		if err := p.SetDraining(idOf("http://added:1"), true); err != nil {
			t.Fatal(err)
		}
		told := 0
		p.node.Do(func(now clock.Instant, c *core.Core) {
			for k := range core.Kind(core.NumKinds) {
				c.Own(k).Each(int64(now), func(it *crdt.PageItem) bool {
					told++
					if strings.Contains(it.Key+string(it.Value), "c4nary") {
						t.Errorf("%v: %q is %q", k, it.Key, it.Value)
					}
					return true
				})
			}
			for _, id := range []kv.WorkerID{idOf("http://added:1"), idOf("http://t:1"), idOf("http://a:1")} {
				row, ok := c.Row(core.Orders, string(binary.BigEndian.AppendUint64(nil, uint64(id))))
				if ok {
					told++
				}
				if strings.Contains(string(row.Value), "c4nary") {
					t.Errorf("order %q", row.Value)
				}
			}
		})
		if told != 2 {
			t.Errorf("peers are told %d things, want the worker without a token and the draining", told)
		}
	})
}
