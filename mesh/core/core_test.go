package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
)

// TestReplicasFollowTheReader: what one replica reads all hold, within a batch
// and a hop.
func TestReplicasFollowTheReader(t *testing.T) {
	g := newGround(t, 1, 4, 6, Config{})
	g.run(3 * time.Second) // settled: the engines are shared out
	readers := map[string]int{}
	for _, e := range g.engines {
		first, standby := g.nodes[0].core.Reader(e.id.Target.Worker)
		if first == standby || standby == "" {
			t.Errorf("engine %v is read by %q and stood by %q", e.id, first, standby)
		}
		readers[first]++
	}
	if len(readers) < 2 {
		t.Errorf("all engines are read by %v", readers)
	}
	for range 20 {
		g.say(10)
		g.run(5 * time.Millisecond)
	}
	g.settleWithin(50 * time.Millisecond)
	for _, n := range g.nodes {
		if st := n.core.Stats(); st.Duplicates > 0 || st.SnapshotsUsed > 0 || st.Incomplete > 0 {
			t.Errorf("%s: %+v on a network without faults", n.name(), st)
		}
	}
}

// TestPagesAndTables: what replicas say of themselves reaches all; what they say
// of the same thing ends the same everywhere.
func TestPagesAndTables(t *testing.T) {
	g := newGround(t, 1, 3, 1, Config{})
	for i, n := range g.nodes {
		n.core.Put(g.now, Loads, "w", []byte{byte(i)}, 0)
		n.core.Put(g.now, Sent, fmt.Sprint(i), []byte("x"), time.Hour)
		n.core.Set(g.now, Orders, "w", uint64(i), []byte{byte(i)})
	}
	g.settleWithin(time.Second)
	g.nodes[1].core.Delete(Loads, "w")
	g.run(20 * time.Millisecond)
	if _, there := g.nodes[0].pages[fmt.Sprint(Loads, g.nodes[1].core.Self(), "w")]; there {
		t.Error("a deleted value is still there")
	}
	before, _ := g.nodes[0].core.Heard(Loads, g.nodes[1].core.Self())
	g.run(300 * time.Millisecond)
	if after, _ := g.nodes[0].core.Heard(Loads, g.nodes[1].core.Self()); after <= before {
		t.Error("a replica whose loads don't change is not heard")
	}
	// A fenced incarnation is void, and its replica says all again as the next.
	old := g.nodes[2].core.Self()
	for _, n := range g.nodes {
		n.core.Fence(g.now, old)
	}
	g.settleWithin(time.Second)
	if now := g.nodes[2].core.Self(); now.Inc != old.Inc+1 || g.nodes[0].pages[fmt.Sprint(Loads, now, "w")] != "\x02" {
		t.Errorf("after its fence %v is %v, and its load %q", old, now, g.nodes[0].pages[fmt.Sprint(Loads, now, "w")])
	}
	if _, there := g.nodes[0].pages[fmt.Sprint(Loads, old, "w")]; there {
		t.Error("what a fenced incarnation said is still there")
	}
}

// TestReaderDies: another replica goes on from where the dead one was, at once.
func TestReaderDies(t *testing.T) {
	g := newGround(t, 1, 3, 4, Config{})
	g.run(3 * time.Second)
	g.say(100)
	g.run(100 * time.Millisecond)
	g.nodes[0].down = true
	for _, n := range g.nodes[1:] {
		n.core.Dead(g.now, g.nodes[0].name())
	}
	g.say(100)
	g.settleWithin(100 * time.Millisecond)
	g.run(2 * time.Minute)
	if peers := g.nodes[1].core.Peers(g.now); len(peers) != 1 {
		t.Errorf("a minute after a death %+v are known", peers)
	}
}

// TestEngineRestarts: a new boot's stream counts at once on every replica, and
// the old one goes.
func TestEngineRestarts(t *testing.T) {
	g := newGround(t, 1, 3, 2, Config{})
	g.say(50)
	g.run(3 * time.Second)
	old := g.engines[0].id
	e := &engine{id: old, kept: 1000}
	e.id.Boot = 7
	g.engines[0] = e
	e.say(g.rand)
	g.settleWithin(100 * time.Millisecond)
	g.run(62 * time.Second)
	for _, n := range g.nodes {
		if n.core.Log().Stream(old) != nil {
			t.Errorf("%s still holds a former life of the engine", n.name())
		}
	}
}

// TestPartitions: after a partition, short or beyond what the rings hold, all
// agree within 3 s, and with the engines.
func TestPartitions(t *testing.T) {
	for _, ring := range []int{0, 4000} {
		t.Run(fmt.Sprint("ring ", ring), func(t *testing.T) {
			g := newGround(t, 3, 4, 5, Config{Log: crdt.LogConfig{MaxRingBytes: ring}})
			g.say(200)
			g.run(3 * time.Second)
			for _, d := range [][2]int{{0, 2}, {0, 3}, {1, 2}, {1, 3}} {
				g.cut(d[0], d[1])
				g.nodes[d[0]].core.Dead(g.now, g.nodes[d[1]].name())
				g.nodes[d[1]].core.Dead(g.now, g.nodes[d[0]].name())
			}
			for range 100 {
				g.say(10)
				g.run(100 * time.Millisecond)
			}
			for _, d := range [][2]int{{0, 2}, {0, 3}, {1, 2}, {1, 3}} {
				g.connect(d[0], d[1])
			}
			g.settleWithin(3 * time.Second)
		})
	}
}

// TestJoinerCatchesUp: a replica that comes late has everything, asking for each
// thing once.
func TestJoinerCatchesUp(t *testing.T) {
	g := newGround(t, 5, 4, 5, Config{Log: crdt.LogConfig{MaxRingBytes: 20_000}})
	for j := range 3 {
		g.cut(3, j)
		g.nodes[j].core.Dead(g.now, g.nodes[3].name())
	}
	g.nodes[3].down = true
	g.say(2000)
	g.nodes[0].core.Put(g.now, Workers, "w", []byte("here"), 0)
	g.run(4 * time.Second)
	g.nodes[3] = g.newNode(3, 1, Config{})
	for j := range 3 {
		g.connect(3, j)
	}
	g.settleWithin(time.Second)
	if st := g.nodes[3].core.Stats(); st.SnapshotsUsed > 5 || st.Duplicates > 50 {
		t.Errorf("the joiner got things more than once: %+v", st)
	}
}

// TestChaos: cuts, lost frames, deaths, engines that forget, for 15 s; then all
// agree, and with the engines where nothing was lost to everybody.
func TestChaos(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			ring := []int{0, 3000}[seed%2]
			g := newGround(t, seed, 4, 4, Config{Log: crdt.LogConfig{MaxRingBytes: ring}})
			if seed%4 == 3 {
				g.lost = true
				for _, e := range g.engines {
					e.kept = 20
				}
			}
			for range 150 {
				g.say(g.rand.IntN(8))
				i, j := g.rand.IntN(4), g.rand.IntN(4)
				switch l := g.links[[2]int{i, j}]; {
				case l == nil:
				case g.rand.IntN(12) == 0 && !l.cut:
					g.cut(i, j)
					if g.rand.IntN(2) == 0 {
						g.nodes[i].core.Dead(g.now, g.nodes[j].name())
						g.nodes[j].core.Dead(g.now, g.nodes[i].name())
					}
				case g.rand.IntN(4) == 0 && l.cut:
					g.connect(i, j)
				case g.rand.IntN(10) == 0 && !l.cut && len(l.queue) > 0:
					l.queue = nil
					g.nodes[i].core.Overflowed(g.now, g.nodes[j].name())
				}
				n := g.nodes[g.rand.IntN(4)]
				n.core.Put(g.now, Loads, fmt.Sprint(g.rand.IntN(5)), []byte(fmt.Sprint(g.now)), 0)
				n.core.Set(g.now, Orders, fmt.Sprint(g.rand.IntN(3)), uint64(n.i), []byte{byte(n.i)})
				g.run(100 * time.Millisecond)
			}
			for d, l := range g.links {
				if l.cut && d[0] > d[1] {
					g.connect(d[0], d[1])
				}
			}
			g.settleWithin(5 * time.Second)
		})
	}
}

// A vector that comes before its sender can be asked for anything is asked for
// again once it can be; the replica is not warm until then.
func TestVectorBeforeTheConnection(t *testing.T) {
	a, b := New(Config{Self: Replica{Name: "a"}}, new(Shown)), New(Config{Self: Replica{Name: "b"}}, new(Shown))
	a.Put(0, Workers, "w", []byte("1"), 0)
	a.Set(0, Orders, "w", 0, []byte("2"))
	pass := func(from, to *Core) {
		for _, m := range from.Out() {
			if err := to.Receive(1, from.Self().Name, m.Frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.Up(1, "b")
	pass(a, b) // which can't answer
	b.Out()
	if b.Warm() {
		t.Error("warm, though nothing was asked for")
	}
	b.Up(1, "a")
	for now := range clock.Instant(4) {
		b.Tick(now * 5e6)
		pass(b, a)
		a.Tick(now * 5e6)
		pass(a, b)
	}
	if row, ok := b.Row(Orders, "w"); !ok || string(row.Value) != "2" {
		t.Errorf("the row is %v", row)
	}
	if p := b.pages[pageID{Workers, a.Self()}]; p == nil || p.copy.Len() != 1 {
		t.Errorf("the page is %+v", p)
	}
	if !b.Warm() {
		t.Error("not warm")
	}
}
