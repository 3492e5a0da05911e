package route

import (
	"context"
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
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/transport"
)

// A pond is routers in one process that share what they know over a network in
// memory, in the virtual time of a bubble. Nothing runs on their workers.
type pond struct {
	t     *testing.T
	net   *transport.Network
	addrs []string
	specs []engine.Spec
	id    engine.Identity
	all   []*swimmer
}

// swimmer is one replica.
type swimmer struct {
	*Router
	clock    clock.Clock
	node     *mesh.Node
	fleet    *fleet.Fleet
	index    *index.Index
	inlets   []*fleet.Inlet
	endpoint *transport.Endpoint
	stop     func()
}

// newPond starts replicas, each of which knows all workers; id is what the
// workers are.
func newPond(t *testing.T, replicas, workers int, id engine.Identity) *pond {
	p := &pond{t: t, net: transport.NewNetwork(1), id: id}
	t.Cleanup(p.net.Close)
	p.net.Faulty(transport.Faults{Delay: time.Millisecond})
	for i := range workers {
		spec, err := engine.Spec{URL: fmt.Sprintf("http://127.0.0.1:%d", 18000+i)}.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		p.specs = append(p.specs, spec)
	}
	for i := range replicas {
		p.addrs = append(p.addrs, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 7400).String())
	}
	for i := range replicas {
		p.all = append(p.all, p.start(i, uint64(i)))
	}
	p.within(5*time.Second, "all replicas are connected", func() bool {
		for _, s := range p.all {
			if s.connected() != replicas-1 {
				return false
			}
		}
		return true
	})
	return p
}

func (p *pond) start(i int, seed uint64) *swimmer {
	cfg := mesh.Config{Transport: transport.Config{Cluster: "pond", Secrets: []string{strings.Repeat("0123456789abcdef", 3)}}, Peers: p.addrs}
	s := &swimmer{index: index.New(index.Config{}), clock: clock.Real()}
	var err error
	if s.endpoint, err = p.net.Listen(p.addrs[i], cfg.Transport, transport.Options{Boot: fmt.Sprintf("r%d-%d", i, seed)}); err != nil {
		p.t.Fatal(err)
	}
	log, approx := slog.New(slog.DiscardHandler), index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 12})
	if s.node, err = mesh.New(cfg, mesh.Deps{Endpoint: s.endpoint, Clock: s.clock, Log: log, Seed: seed}); err != nil {
		p.t.Fatal(err)
	}
	s.fleet, err = fleet.New(fleet.Config{}, fleet.Deps{Index: s.index, Approx: approx, Clock: s.clock, Log: log, Mesh: s.node}, p.specs,
		func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		p.t.Fatal(err)
	}
	for w := range p.specs {
		s.inlets = append(s.inlets, s.fleet.Admit(w, p.id, []engine.Model{{ID: "m"}})[0])
	}
	s.Router = New(Config{Policy: Rhizome, Weights: cost.DefaultWeights(), NearTie: DefaultMargins(), Explained: 8, Seed: seed},
		Deps{Fleet: s.fleet, Index: s.index, Approx: approx, Clock: s.clock, Mesh: s.node})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.node.Run(ctx); err != nil {
			p.t.Error(err)
		}
	})
	wg.Go(func() {
		for s.clock.Sleep(ctx, 5*time.Millisecond) == nil {
			s.fleet.Listen()
			s.Tell()
		}
	})
	s.stop = func() { cancel(); wg.Wait() }
	return s
}

func (p *pond) stopAll() {
	for _, s := range p.all {
		s.stop()
	}
	time.Sleep(10 * time.Second) // probes of memberlist outlive it, and the bubble's clock stands at the end
}

func (s *swimmer) connected() (up int) {
	s.node.Do(func(now clock.Instant, c *core.Core) {
		for _, peer := range c.Peers(now) {
			if peer.Up {
				up++
			}
		}
	})
	return up
}

// within waits in virtual time until a thing is so.
func (p *pond) within(d time.Duration, what string, is func() bool) {
	p.t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > d {
			p.t.Fatalf("after %v not yet: %s", d, what)
		}
	}
}

// place has a replica decide on a prompt.
func (s *swimmer) place(t *testing.T, q Query) *Decision {
	t.Helper()
	d, err := s.Decide(q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (s *swimmer) worker(t kv.Target) *fleet.Member {
	for _, m := range s.fleet.View().Members {
		if m.Target == t {
			return m
		}
	}
	return nil
}

// ids is a prompt of n token ids that no other number's has.
func ids(no, n int) *prompt.Request {
	p := &prompt.Request{Kind: prompt.Completion, Model: "m", Stream: true, N: 1, Prompts: 1, MaxTokens: 100, Tokens: make([]uint32, n)}
	for j := range p.Tokens {
		p.Tokens[j] = uint32(no*100_000 + j)
	}
	return p
}

var withEvents = engine.Identity{Engine: engine.VLLM, Events: "simulated", BlockTokens: 16}

// Promises that nothing was heard of end on replicas that decide nothing more.
func TestPromisesEndWithoutADecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 2, 2, withEvents)
		defer p.stopAll()
		for _, in := range p.all[0].inlets {
			in.Feed(engine.FeedEvent{Kind: engine.FeedConnected}) // names the caches' lives
		}
		time.Sleep(50 * time.Millisecond)
		p.all[0].place(t, Query{ID: "a", Prompt: ids(1, 640)})
		for i, s := range p.all {
			p.within(time.Second, fmt.Sprintf("replica %d holds promises", i), func() bool { return s.index.Stats().Promises > 0 })
		}
		for i, s := range p.all {
			p.within(mostPromise+2*learnedEvery, fmt.Sprintf("replica %d holds no promise any more", i), func() bool { return s.index.Stats().Promises == 0 })
		}
	})
}

// 256 requests in flight at once that three replicas place, nothing cached and 8
// workers idle, all at once or within a fifth of a second: nobody is herded.
func TestConcurrentColdRequestsSpreadOverReplicas(t *testing.T) {
	const requests, workers, replicas = 256, 8, 3
	for _, gap := range []time.Duration{0, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			p := newPond(t, replicas, workers, withEvents)
			defer p.stopAll()
			var all sync.WaitGroup
			targets := make([]kv.Target, requests)
			for who, s := range p.all {
				all.Go(func() {
					for i := who; i < requests; i += replicas {
						targets[i] = s.place(t, Query{ID: fmt.Sprint(i), Prompt: ids(i, 320)}).Target
						time.Sleep(gap)
					}
				})
			}
			all.Wait()
			load, most := make(map[kv.Target]int), 0
			for _, target := range targets {
				load[target]++
				most = max(most, load[target])
			}
			if mean := float64(requests) / workers; float64(most) > 1.5*mean {
				t.Errorf("every %v: one worker got %d, the mean is %v", gap, most, mean)
			}
		})
	}
}

// What a replica has in flight the others know within some milliseconds. Once it
// was killed they forget it, and what it still says when it was not.
func TestLoadsOfAKilledReplicaVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 3, 1, withEvents)
		defer p.stopAll()
		target := p.all[0].fleet.View().Members[0].Target
		sees := func(i int) fleet.Share { return p.all[i].worker(target).PeerShare(p.all[i].clock.Now()) }
		// A short request tells how long they take.
		short := p.all[2].place(t, Query{ID: "short", Prompt: ids(1000, 320)})
		time.Sleep(500 * time.Millisecond)
		p.all[2].FirstByte(short)
		time.Sleep(500 * time.Millisecond)
		p.all[2].Done(short, Outcome{Result: Completed, Usage: Usage{CachedTokens: -1}})
		var placed []*Decision
		for i := range 20 {
			placed = append(placed, p.all[2].place(t, Query{ID: fmt.Sprint(i), Prompt: ids(i, 320)}))
		}
		p.within(20*time.Millisecond, "the others know", func() bool { return sees(0).InFlight == 20 && sees(1).InFlight == 20 })
		if s := sees(0); s.QueuedTokens < 6000 || s.QueuedSeqs != 20 {
			t.Errorf("a peer has %+v in flight", s)
		}
		p.all[2].FirstByte(placed[0])
		p.within(20*time.Millisecond, "the others know of a first token", func() bool { return sees(0).Decoding == 1 && sees(0).QueuedSeqs == 19 })
		time.Sleep(10 * time.Second)
		if s := sees(0); s.InFlight != 20 || s.Decoding != 1 {
			t.Errorf("of a replica with long requests that can be heard %+v counts", s)
		}
		p.all[2].endpoint.Crash()
		time.Sleep(silent)
		if s := sees(0); s.InFlight != 20 {
			t.Errorf("%+v counts of a replica that is silent for less than three heartbeats", s)
		}
		time.Sleep(1500 * time.Millisecond)
		if s := sees(0); s.InFlight < 5 || s.InFlight > 15 {
			t.Errorf("%+v counts of a replica that is silent for about a mean request time", s)
		}
		p.within(7*time.Second, "the others forget", func() bool { return sees(0) == (fleet.Share{}) && sees(1) == (fleet.Share{}) })
		time.Sleep(70 * time.Second)
		for i := range 2 {
			p.all[i].node.Do(func(_ clock.Instant, c *core.Core) {
				if at, ok := c.Heard(core.Loads, p.all[2].self()); ok {
					t.Errorf("the page of a replica that died long ago, last heard at %v, is still there", at)
				}
			})
		}
	})
}

// silent is for how long a replica may be silent at least before anybody thinks
// anything of it.
const silent = 450 * time.Millisecond

func (s *swimmer) self() (r core.Replica) {
	s.node.Do(func(_ clock.Instant, c *core.Core) { r = c.Self() })
	return r
}

// A prompt that is on its way to a worker by one replica is a hit there for the
// others, before any event tells so; and no longer once the request failed, or
// its replica is dead.
func TestPromisesAreHitsOnOtherReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 3, 4, withEvents)
		defer p.stopAll()
		for _, in := range p.all[0].inlets {
			in.Feed(engine.FeedEvent{Kind: engine.FeedConnected}) // names the caches' lives
		}
		time.Sleep(50 * time.Millisecond)
		held := func(s *swimmer, d *Decision, q *prompt.Request) int {
			for _, h := range s.index.Match(q.TokenKeys(prompt.Form{BlockTokens: 16}), nil) {
				if h.Slot == s.worker(d.Target).Cache().Slot {
					return h.Promised.Len()
				}
			}
			return 0
		}
		a, b, c := p.all[0], p.all[1], p.all[2]
		long := ids(1, 16*512)
		first := b.place(t, Query{ID: "first", Prompt: long})
		p.within(20*time.Millisecond, "the others know of the promise", func() bool { return held(a, first, long) == 512 && held(c, first, long) == 512 })
		if d := a.place(t, Query{ID: "again", Prompt: long}); d.Target != first.Target || d.PredictedCachedTokens < 8000 {
			t.Errorf("another replica sends the same prompt to %v with %d tokens cached, the first is on its way to %v", d.Target, d.PredictedCachedTokens, first.Target)
		}
		// A first token leaves two seconds for the events.
		b.FirstByte(first)
		time.Sleep(1900 * time.Millisecond)
		if held(c, first, long) != 512 {
			t.Error("the promise is gone before its events can have come")
		}

		failed := ids(2, 16*512)
		d := b.place(t, Query{ID: "failed", Prompt: failed})
		p.within(20*time.Millisecond, "the others know of the promise", func() bool { return held(c, d, failed) == 512 })
		b.Done(d, Outcome{Result: Failed})
		p.within(20*time.Millisecond, "it is taken back", func() bool { return held(c, d, failed) == 0 && held(a, d, failed) == 0 })

		short := ids(3, 16*fewBlocks)
		d = b.place(t, Query{ID: "short", Prompt: short})
		time.Sleep(50 * time.Millisecond)
		if held(c, d, short) != 0 {
			t.Error("peers are told of a promise of few blocks")
		}

		killed := ids(4, 16*512)
		d = b.place(t, Query{ID: "killed", Prompt: killed})
		p.within(20*time.Millisecond, "the others know of the promise", func() bool { return held(c, d, killed) == 512 })
		b.endpoint.Crash()
		p.within(15*time.Second, "a dead replica's promise is void", func() bool { return held(c, d, killed) == 0 })
	})
}

// What one replica sent to workers without KV events the others know, also one
// that joins later; told, it is as old there as where it was sent.
func TestSentIsSharedWhereNoEventsTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 2, 4, engine.Identity{Engine: engine.VLLM, BlockTokens: 16})
		defer p.stopAll()
		a, b := p.all[0], p.all[1]
		long := ids(1, 64*100)
		first := a.place(t, Query{ID: "first", Prompt: long})
		a.FirstByte(first)
		a.Done(first, Outcome{Result: Completed, Usage: Usage{CachedTokens: -1}})
		time.Sleep(50 * time.Millisecond)
		d := b.place(t, Query{ID: "again", Prompt: long})
		if d.Target != first.Target || d.PredictedCachedTokens < 6000 {
			t.Errorf("another replica sends the same prompt to %v with %d tokens cached, the first went to %v", d.Target, d.PredictedCachedTokens, first.Target)
		}
		b.FirstByte(d)
		b.Done(d, Outcome{Result: Completed, Usage: Usage{CachedTokens: -1}})
		time.Sleep(50 * time.Millisecond)
		ma, mb := a.worker(d.Target), b.worker(d.Target)
		ca, cb := ma.Cache(), mb.Cache()
		if x, y := ma.Clock(&ca), mb.Clock(&cb); x != y || x < 6400 {
			t.Errorf("the replicas' clocks of the cache stand at %d and %d", x, y)
		}
		b.stop()
		p.all[1] = p.start(1, 77)
		late := p.all[1]
		p.within(10*time.Second, "it is connected", func() bool { return late.connected() == 1 })
		time.Sleep(11 * time.Second) // replicas compare what they have every 10 s
		if d := late.place(t, Query{ID: "late", Prompt: long}); d.Target != first.Target || d.PredictedCachedTokens < 6000 {
			t.Errorf("a replica that joined later sends it to %v with %d tokens cached, the first went to %v", d.Target, d.PredictedCachedTokens, first.Target)
		}
	})
}

// A class of which a replica has no samples begins with what the peers learned.
func TestFitsBeginWhereThePeersAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 2, 1, withEvents)
		defer p.stopAll()
		a, b := p.all[0], p.all[1]
		d := b.place(t, Query{ID: "class", Prompt: ids(1000, 320)}) // the class exists there, without samples
		b.Done(d, Outcome{Result: Failed})
		for i := range 30 {
			d := a.place(t, Query{ID: fmt.Sprint(i), Prompt: ids(i, 4000)})
			time.Sleep(900 * time.Millisecond)
			a.FirstByte(d)
			a.Done(d, Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 4000, CachedTokens: 0, CompletionTokens: 1}})
		}
		time.Sleep(1500 * time.Millisecond)
		one := func(s *swimmer) cost.FitState {
			for _, state := range s.FitStates() {
				return state
			}
			return cost.FitState{}
		}
		x, y := one(a), one(b)
		if x.Samples < 20 || y.Samples == 0 {
			t.Fatalf("samples: %d where they were taken, %d on the peer", x.Samples, y.Samples)
		}
		if one, other := x.Micros["token"], y.Micros["token"]; one > 1.2*other || other > 1.2*one {
			t.Errorf("a token takes %v µs by one replica, %v by the other that learned from it", one, other)
		}
	})
}
