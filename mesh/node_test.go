package mesh

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pond is replicas in one process, on a network in memory.
type pond struct {
	t     *testing.T
	net   *transport.Network
	addrs []netip.AddrPort
	nodes []*swimmer
	lives int
	minor byte         // of those who start from now on; 0: as it is
	log   slog.Handler // theirs; nil: none
}

// swimmer is a replica that can be stopped and started.
type swimmer struct {
	*Node
	*heard
	endpoint *transport.Endpoint
	stop     context.CancelFunc
	done     chan struct{}
}

// heard is what a replica was told of pages.
type heard struct {
	mu    sync.Mutex
	pages map[string]string
	words []string
}

func (s *heard) page(w core.Replica, key string, v *crdt.PageItem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == nil {
		s.pages = map[string]string{}
	}
	if at := fmt.Sprint(w.Name, key); v == nil {
		delete(s.pages, at)
	} else {
		s.pages[at] = string(v.Value)
	}
}

func (s *heard) word(from string, words []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = append(s.words, from+": "+string(words))
}

func newPond(t *testing.T, replicas int) *pond {
	p := &pond{t: t, net: transport.NewNetwork(1)}
	t.Cleanup(p.net.Close)
	p.net.Faulty(transport.Faults{Delay: time.Millisecond})
	for i := range replicas {
		p.addrs = append(p.addrs, netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:7400", i+1)))
	}
	for i := range replicas {
		p.nodes = append(p.nodes, p.start(i))
	}
	return p
}

func (p *pond) start(i int) *swimmer {
	cfg := Config{Transport: transport.Config{Cluster: "pond", Secrets: []string{strings.Repeat("0123456789abcdef", 3)}}}
	for j := range min(3, len(p.addrs)) {
		cfg.Peers = append(cfg.Peers, p.addrs[j].String())
	}
	return p.startAs(i, cfg)
}

// startAs starts a replica at address i that is configured otherwise.
func (p *pond) startAs(i int, cfg Config) *swimmer {
	p.t.Helper()
	p.lives++
	e, err := p.net.Listen(p.addrs[i].String(), cfg.Transport, transport.Options{Boot: fmt.Sprintf("r%d-%d", i, p.lives)})
	if err != nil {
		p.t.Fatal(err)
	}
	s := &swimmer{heard: &heard{}, endpoint: e, done: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	if p.log != nil {
		log = slog.New(p.log)
	}
	s.Node, err = New(cfg, Deps{Endpoint: e, Clock: clock.Real(), Log: log, Seed: uint64(i)})
	if err != nil {
		p.t.Fatal(err)
	}
	s.meta.minor = cmp.Or(p.minor, Minor)
	s.HearPage(core.Loads, s.heard.page)
	s.HearTold(core.Agreed, s.heard.word)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		if err := s.Run(ctx); err != nil {
			p.t.Error(err)
		}
	}()
	return s
}

func (p *pond) stopAll() {
	for _, s := range p.nodes {
		s.stop()
	}
	for _, s := range p.nodes {
		<-s.done
	}
	// A probe of memberlist that is under way outlives it, by its time-out; and
	// the bubble's clock stands once the test returns.
	time.Sleep(10 * time.Second)
}

// up reports whether every two of the nodes have a connection.
func up(nodes ...*swimmer) bool {
	for _, s := range nodes {
		n := 0
		s.Do(func(now clock.Instant, c *core.Core) {
			for _, peer := range c.Peers(now) {
				if peer.Up {
					n++
				}
			}
		})
		if n != len(nodes)-1 {
			return false
		}
	}
	return true
}

// within waits in virtual time until a thing is so.
func (p *pond) within(d time.Duration, what string, is func() bool) {
	p.t.Helper()
	for began := time.Now(); ; {
		if is() {
			return
		}
		if time.Since(began) > d {
			p.t.Fatalf("after %v not yet: %s", d, what)
		}
		time.Sleep(10 * time.Millisecond) // of the bubble
	}
}

var theStream = crdt.StreamID{Target: kv.Target{Worker: 5, Rank: kv.NoRank}, Boot: 9}

func (s *swimmer) publish(t *testing.T, from, to int) {
	for q := from; q < to; q++ {
		s.Do(func(now clock.Instant, c *core.Core) {
			op := kv.Op{Kind: kv.Insert, Root: kv.Root("m", "", ""), Blocks: []kv.Block{{Hash: kv.EngineHash(q + 1), Content: kv.Content(q)}}}
			if _, err := c.Publish(now, theStream, true, uint64(q), []kv.Op{op}); err != nil {
				t.Error(err)
			}
		})
	}
}

func (s *swimmer) at() (next uint64) {
	s.Do(func(_ clock.Instant, c *core.Core) {
		if st := c.Log().Stream(theStream); st != nil {
			next = st.Next()
		}
	})
	return next
}

// A replica that others found first need not look for them.
func TestWhoIsHereIsFound(t *testing.T) {
	self, other := netip.MustParseAddrPort("10.0.0.1:7400"), netip.MustParseAddrPort("10.0.0.2:7400")
	b := newAddressBook(256)
	b.seed(self, 0)
	b.resolved = true
	if b.seed(other, 0); b.looked(self) {
		t.Error("it has looked at an address that was not tried")
	}
	if b.here(other, "r"); !b.looked(self) {
		t.Error("it still looks for one that is here")
	}
}

// TestMeshForms: replicas find each other by any of three names, share streams
// and pages, notice a crash and a goodbye, and take a new life at once.
func TestMeshForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 5)
		defer p.stopAll()
		p.within(5*time.Second, "all are connected", func() bool { return up(p.nodes...) })
		p.nodes[0].publish(t, 0, 100)
		p.nodes[1].Do(func(now clock.Instant, c *core.Core) { c.Put(now, core.Loads, "w", []byte("7"), 0) })
		p.within(100*time.Millisecond, "all have the stream", func() bool {
			for _, s := range p.nodes {
				if s.at() != 100 {
					return false
				}
			}
			return true
		})
		p.within(100*time.Millisecond, "all have the page", func() bool {
			s := p.nodes[4]
			s.heard.mu.Lock()
			defer s.heard.mu.Unlock()
			return s.pages[fmt.Sprint(p.nodes[1].core.Self().Name, "w")] == "7"
		})

		if !p.nodes[0].Tell(p.nodes[1].core.Self().Name, core.Agreed, []byte("hello")) || p.nodes[0].Tell("nobody", core.Agreed, nil) {
			t.Error("words go where there is no connection, or not where there is one")
		}
		p.within(100*time.Millisecond, "the words are heard by one", func() bool {
			s := p.nodes[1]
			s.heard.mu.Lock()
			defer s.heard.mu.Unlock()
			return slices.Equal(s.words, []string{p.nodes[0].core.Self().Name + ": hello"})
		})

		// A crash is noticed in time, a goodbye at once.
		p.nodes[4].endpoint.Crash()
		crashed := p.nodes[4]
		p.within(6*time.Second, "the crash is noticed", func() bool { return up(p.nodes[:4]...) })
		crashed.stop()
		<-crashed.done
		p.nodes[3].stop()
		<-p.nodes[3].done
		p.within(time.Second, "the goodbye is heard", func() bool { return up(p.nodes[:3]...) })
		p.within(time.Second, "they look for the one that crashed, not for the one that left", func() bool {
			for _, s := range p.nodes[:3] {
				s.known.mu.Lock()
				left, crashed := s.known.at[p.addrs[3]], s.known.at[p.addrs[4]]
				s.known.mu.Unlock()
				if left != nil && left.name != "" || crashed == nil || crashed.member {
					return false
				}
			}
			return true
		})
		for i, peer := range p.nodes[0].Peers() {
			if gone := i >= 2; peer.Alive == gone || peer.Left != (i == 2) {
				t.Errorf("peer %d is %+v", i, peer)
			}
		}
		p.nodes[3], p.nodes[4] = p.start(3), p.start(4)
		p.within(3*time.Second, "new lives are connected", func() bool { return up(p.nodes...) })
		p.within(time.Second, "new lives have the stream", func() bool { return p.nodes[3].at() == 100 && p.nodes[4].at() == 100 })
	})
}

// TestBR25_HalvesFindEachOtherAgain: however long it lasted, membership is whole 2.5 s after it
// ends, and replicas have what they missed soon after. The memory of dead
// members is much shorter than that in membership itself.
func TestBR25_HalvesFindEachOtherAgain(t *testing.T) {
	for _, last := range []time.Duration{20 * time.Second, 60 * time.Second, 120 * time.Second} {
		t.Run(last.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPond(t, 5)
				defer p.stopAll()
				p.within(5*time.Second, "all are connected", func() bool { return up(p.nodes...) })
				p.net.Partition(p.addrs[:2], p.addrs[2:])
				time.Sleep(last)
				if !up(p.nodes[:2]...) || !up(p.nodes[2:]...) {
					t.Error("the sides are not whole")
				}
				p.nodes[0].publish(t, 0, 100)
				p.net.Heal()
				p.within(2500*time.Millisecond, "membership is whole", func() bool { return up(p.nodes...) })
				p.within(500*time.Millisecond, "all have what they missed", func() bool { return p.nodes[4].at() == 100 })
			})
		})
	}
}
