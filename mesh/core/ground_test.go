package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// ground is replicas, engines and the network between them, in virtual time and
// from one seed.
type ground struct {
	t       *testing.T
	rand    *rand.Rand
	now     clock.Instant
	nodes   []*node
	engines []*engine
	links   map[[2]int]*link // from, to
	delay   time.Duration
	shared  map[string]uint64 // digests by boot, W and skips
	lost    bool              // batches were lost to everybody
	steps   int
	tap     func(frame []byte) // sees what is sent, if set
}

// node is one replica, with what its sink was told.
type node struct {
	g     *ground
	i     int
	core  *Core
	down  bool
	shown map[source]map[index.Change]bool
	pages map[string]string
	reads map[int]bool // engines whose events it reads
}

// engine is a worker's log: it keeps its last batches for replay.
type engine struct {
	id     crdt.StreamID
	log    [][]kv.Op
	kept   int
	hashes uint64
}

type link struct {
	cut    bool
	queue  []sent
	closed int // which connection this is
}

type sent struct {
	at    clock.Instant
	frame []byte
}

func newGround(t *testing.T, seed uint64, replicas, engines int, cfg Config) *ground {
	g := &ground{t: t, rand: rand.New(rand.NewPCG(seed, 1)), now: 1, links: map[[2]int]*link{}, delay: 2 * time.Millisecond, shared: map[string]uint64{}}
	for i := range replicas {
		g.nodes = append(g.nodes, g.newNode(i, 0, cfg))
	}
	for i := range engines {
		g.engines = append(g.engines, &engine{id: crdt.StreamID{Target: kv.Target{Worker: kv.WorkerID(i + 1), Rank: kv.NoRank}, Boot: kv.Boot(i + 100)}, kept: 1000})
	}
	for i := range g.nodes {
		for j := range g.nodes {
			if i != j {
				g.links[[2]int{i, j}] = &link{}
			}
		}
	}
	for i := range g.nodes {
		for j := range i {
			g.connect(i, j)
		}
	}
	return g
}

func (g *ground) newNode(i, life int, cfg Config) *node {
	n := &node{g: g, i: i, shown: map[source]map[index.Change]bool{}, pages: map[string]string{}, reads: map[int]bool{}}
	cfg.Self, cfg.Seed = Replica{Name: fmt.Sprintf("r%d.%d", i, life)}, uint64(i)
	n.core = New(cfg, n)
	return n
}

func (n *node) name() string { return n.core.Self().Name }

func (n *node) Changed(id crdt.StreamID, changes []index.Change) {
	at := n.shown[source{id.Target, id.Source}]
	for _, c := range changes {
		c.Whole = false // what is there is the matter here
		on := c
		on.Present = true
		if c.Present {
			at[on] = true
		} else {
			delete(at, on)
		}
	}
}

func (n *node) Replaced(id crdt.StreamID, s *crdt.Stream) {
	at := map[index.Change]bool{}
	n.shown[source{id.Target, id.Source}] = at
	if s != nil {
		s.Each(func(c index.Change) { c.Whole = false; at[c] = true })
	}
}

func (n *node) Page(k Kind, writer Replica, key string, v *crdt.PageItem) {
	at := fmt.Sprint(k, writer, key)
	if v == nil {
		delete(n.pages, at)
		return
	}
	n.pages[at] = string(v.Value)
}

func (n *node) Row(Table, crdt.Register)            {}
func (n *node) Readers()                            {}
func (n *node) Told(string, Topic, []byte)          {}
func (n *node) Trimmed(crdt.StreamID, kv.Tier, int) {}

// connect makes a connection, of which both learn.
func (g *ground) connect(i, j int) {
	for _, d := range [][2]int{{i, j}, {j, i}} {
		l := g.links[d]
		l.cut, l.queue = false, nil
		g.nodes[d[0]].core.Up(g.now, g.nodes[d[1]].name())
	}
}

// cut breaks it: what is under way is lost.
func (g *ground) cut(i, j int) {
	for _, d := range [][2]int{{i, j}, {j, i}} {
		g.links[d].cut, g.links[d].queue = true, nil
		g.nodes[d[0]].core.Down(g.now, g.nodes[d[1]].name())
	}
}

// run lets time pass in steps of 5 ms.
func (g *ground) run(d time.Duration) {
	for end := g.now.Add(d); g.now < end; {
		g.now = g.now.Add(5 * time.Millisecond)
		for _, n := range g.nodes {
			if !n.down {
				n.follow()
				n.core.Tick(g.now)
			}
		}
		g.deliver()
		if g.steps++; g.steps%8 == 0 {
			g.compare()
		}
	}
}

// deliver moves frames until nothing more arrives at this instant.
func (g *ground) deliver() {
	for busy := true; busy; {
		busy = false
		for i, n := range g.nodes {
			if n.down {
				continue
			}
			for _, m := range n.core.Out() {
				if g.tap != nil {
					g.tap(m.Frame)
				}
				for j, o := range g.nodes {
					l := g.links[[2]int{i, j}]
					if i == j || m.To != "" && m.To != o.name() || l.cut {
						continue
					}
					l.queue = append(l.queue, sent{g.now.Add(g.delay), m.Frame})
				}
			}
			for j, o := range g.nodes {
				l := g.links[[2]int{j, i}]
				for l != nil && len(l.queue) > 0 && l.queue[0].at <= g.now {
					frame := l.queue[0].frame
					l.queue = l.queue[1:]
					busy = true
					if err := n.core.Receive(g.now, o.name(), slices.Clone(frame)); err != nil {
						g.t.Fatal(err)
					}
				}
			}
		}
	}
}

// follow reads the engines that the replica is to read: what they still have of
// what is missing, and then what they say.
func (n *node) follow() {
	for i, e := range n.g.engines {
		reads := n.core.Reads(e.id.Target.Worker) && n.core.follows(e.id.Target)
		if !reads {
			n.reads[i] = false
			continue
		}
		n.core.Booted(n.g.now, e.id.Target, e.id.Boot, "")
		s, err := n.core.Open(n.g.now, e.id, true)
		if err != nil {
			n.g.t.Fatal(err)
		}
		n.reads[i] = true
		oldest := max(0, len(e.log)-e.kept)
		if s.Next() < uint64(oldest) {
			if err := n.core.Lost(n.g.now, e.id, true, crdt.Range{From: s.Next(), To: uint64(oldest - 1)}); err != nil {
				n.g.t.Fatal(err)
			}
		}
		for q := max(int(s.Next()), oldest); q < len(e.log); q++ {
			if _, err := n.core.Publish(n.g.now, e.id, true, uint64(q), e.log[q]); err != nil {
				n.g.t.Fatal(err)
			}
		}
	}
}

// say lets an engine store a chain of blocks and lose some that it had.
func (e *engine) say(r *rand.Rand) {
	root := kv.Root("m", "", "")
	var blocks []kv.Block
	for range 1 + r.IntN(6) {
		e.hashes++
		blocks = append(blocks, kv.Block{Hash: kv.EngineHash(e.hashes), Content: kv.Content(r.Uint64N(1000))})
	}
	op := kv.Op{Kind: kv.Insert, BlockTokens: 16, Root: root, Blocks: blocks}
	if e.hashes > 20 && r.IntN(2) == 0 {
		op.HasParent, op.Parent = true, kv.EngineHash(1+r.Uint64N(e.hashes-10))
	}
	ops := []kv.Op{op}
	if e.hashes > 40 {
		ops = append(ops, kv.Op{Kind: kv.Remove, Hashes: []kv.EngineHash{kv.EngineHash(1 + r.Uint64N(e.hashes-20)), kv.EngineHash(1 + r.Uint64N(e.hashes-20))}})
	}
	e.log = append(e.log, ops)
}

func (g *ground) say(times int) {
	for range times {
		g.engines[g.rand.IntN(len(g.engines))].say(g.rand)
	}
}

// compare checks that equal positions of a stream have equal digests, whoever
// was there and when.
func (g *ground) compare() {
	for _, n := range g.nodes {
		for id, s := range n.core.Log().All() {
			at := fmt.Sprint(id, s.Next(), s.Skips())
			if d, seen := g.shared[at]; seen && d != s.Digest() {
				g.t.Fatalf("%s at %s: digest %x, another had %x", n.name(), at, s.Digest(), d)
			}
			g.shared[at] = s.Digest()
		}
		if n.core.Stats().Corrupt > 0 {
			g.t.Fatalf("%s found a corrupt stream", n.name())
		}
	}
}

// agreed returns how the replicas differ, "" if they don't: in where they are
// with the engines' logs, in what they show, in pages and tables.
func (g *ground) agreed() string {
	var first *node
	for _, n := range g.nodes {
		if n.down {
			continue
		}
		for i, e := range g.engines {
			s := n.core.Log().Stream(e.id)
			if s == nil {
				return fmt.Sprintf("%s knows nothing of engine %d", n.name(), i)
			}
			if int(s.Next()) != len(e.log) {
				return fmt.Sprintf("%s is at %d of %d of engine %d", n.name(), s.Next(), len(e.log), i)
			}
			want := map[index.Change]bool{}
			s.Each(func(c index.Change) { c.Whole = false; want[c] = true })
			if !maps.Equal(want, n.shown[source{e.id.Target, e.id.Source}]) {
				return fmt.Sprintf("%s shows %d blocks of engine %d and holds %d", n.name(), len(n.shown[source{e.id.Target, e.id.Source}]), i, len(want))
			}
			if !g.lost && s.Digest() != e.truth() {
				return fmt.Sprintf("%s holds something else than engine %d", n.name(), i)
			}
			if first != nil {
				if o := first.core.Log().Stream(e.id); o.Digest() != s.Digest() || !slices.Equal(o.Skips(), s.Skips()) {
					return fmt.Sprintf("%s and %s differ on engine %d: skips %v and %v", first.name(), n.name(), i, o.Skips(), s.Skips())
				}
			}
		}
		for k := range Kind(NumKinds) {
			for _, o := range g.nodes {
				if o == n || o.down {
					continue
				}
				why := ""
				o.core.Own(k).Each(int64(g.now), func(it *crdt.PageItem) bool {
					if got := n.pages[fmt.Sprint(k, o.core.Self(), it.Key)]; got != string(it.Value) {
						why = fmt.Sprintf("%s has %q of %s on the page %s of %s: %q", n.name(), got, it.Key, k, o.name(), it.Value)
					}
					return why == ""
				})
				if why != "" {
					return why
				}
			}
		}
		if first == nil {
			first = n
		}
		for t := range Table(NumTables) {
			if n.core.tables[t].Digest() != first.core.tables[t].Digest() {
				return fmt.Sprintf("%s and %s differ in table %d", n.name(), first.name(), t)
			}
		}
	}
	return ""
}

// truth is the digest of a log that lost nothing.
func (e *engine) truth() uint64 {
	s := crdt.NewStream(crdt.StreamConfig{Counted: true})
	for q, ops := range e.log {
		s.Apply(uint64(q), ops, func(index.Change) {})
	}
	return s.Digest()
}

// settleWithin lets time pass until all agree.
func (g *ground) settleWithin(d time.Duration) {
	g.t.Helper()
	why := ""
	for end := g.now.Add(d); g.now < end; {
		g.run(50 * time.Millisecond)
		if why = g.agreed(); why == "" {
			return
		}
	}
	g.t.Fatalf("after %v: %s", d, why)
}
