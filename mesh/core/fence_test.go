package core

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"pgregory.net/rapid"
)

// agreedOn is what replicas agreed on, in one order that each of them takes in its
// own time, as by a log.
type agreedOn struct {
	log  []func(now clock.Instant, c *Core)
	done []int // of the log, by node
}

func (a *agreedOn) take(now clock.Instant, i int, c *Core, n int) {
	for ; n > 0 && a.done[i] < len(a.log); n-- {
		a.log[a.done[i]](now, c)
		a.done[i]++
	}
}

// Whatever is cut, lost, killed, passed on by others,
// fenced and settled, no replica shows a promise past its deadline and the time it
// was under way, nor one of an incarnation whose fence, or below a low mark whose
// checkpoint, it has taken; and in the end all show what the origins hold.
func TestNoTicketOutlivesItsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const replicas = 4
		g := newGround(t, rapid.Uint64Range(0, 1<<20).Draw(rt, "seed"), replicas, 0, Config{Keep: 3 * time.Second, Compare: time.Second})
		a := &agreedOn{done: make([]int, replicas)}
		ends := map[string]clock.Instant{} // by origin and number, when it is over there
		last := make([]uint64, replicas)
		at := func(name string, no uint64) string { return fmt.Sprint(name, "/", no) }
		node := func(label string) int { return rapid.IntRange(0, replicas-1).Draw(rt, label) }
		check := func() {
			for i, n := range g.nodes {
				for id, p := range n.core.pages {
					if n.core.void(id.writer) {
						rt.Fatalf("%s keeps a page of %v, which was fenced", n.name(), id.writer)
					}
					p.copy.Each(int64(g.now), func(it *crdt.PageItem) bool {
						no := TicketNo(it.Key)
						_, shown := n.pages[fmt.Sprint(Tickets, id.writer, it.Key)]
						if end := ends[at(id.writer.Name, no)]; shown && g.now.Sub(end) > mostUnderWay {
							rt.Fatalf("%d shows %v of %v, which ended %v ago", i, no, id.writer, g.now.Sub(end))
						}
						if shown == (no < n.core.settled.lows[id.writer]) {
							rt.Fatalf("%d shows promise %d of %v: %t, settled are those below %d", i, no, id.writer, shown, n.core.settled.lows[id.writer])
						}
						return true
					})
				}
			}
		}
		run := func(d time.Duration) {
			for end := g.now.Add(d); g.now < end; {
				g.run(10 * time.Millisecond)
				for i, n := range g.nodes {
					a.take(g.now, i, n.core, g.rand.IntN(3))
				}
				check()
			}
		}
		steps := map[string]func(*rapid.T){
			"promise": func(rt *rapid.T) {
				i := node("origin")
				last[i]++
				life := time.Duration(rapid.IntRange(500, 5000).Draw(rt, "ms")) * time.Millisecond
				ends[at(g.nodes[i].name(), last[i])] = g.now.Add(life)
				g.nodes[i].core.Put(g.now, Tickets, TicketKey(last[i]), []byte{1}, life)
			},
			"first token": func(rt *rapid.T) {
				i := node("origin")
				if key := TicketKey(last[i]); last[i] > 0 {
					if _, ok := g.nodes[i].core.Own(Tickets).Get(int64(g.now), key); ok {
						ends[at(g.nodes[i].name(), last[i])] = max(ends[at(g.nodes[i].name(), last[i])], g.now.Add(2*time.Second))
						g.nodes[i].core.Put(g.now, Tickets, key, []byte{1}, 2*time.Second)
					}
				}
			},
			"end": func(rt *rapid.T) {
				i := node("origin")
				if no := last[i]; no > 0 {
					g.nodes[i].core.Delete(Tickets, TicketKey(no))
				}
			},
			"cut": func(*rapid.T) {
				if i, j := node("one"), node("other"); i != j && !g.links[[2]int{i, j}].cut {
					g.cut(i, j)
				}
			},
			"connect": func(*rapid.T) {
				if i, j := node("one"), node("other"); i != j && g.links[[2]int{i, j}].cut {
					g.connect(i, j)
				}
			},
			"lose": func(*rapid.T) {
				if i, j := node("one"), node("other"); i != j && !g.links[[2]int{i, j}].cut {
					g.links[[2]int{i, j}].queue = nil
					g.nodes[i].core.Overflowed(g.now, g.nodes[j].name())
				}
			},
			"fence": func(*rapid.T) {
				r := g.nodes[node("whom")].core.Self()
				a.log = append(a.log, func(now clock.Instant, c *Core) { c.Fence(now, r) })
			},
			"checkpoint": func(*rapid.T) {
				i := node("whom")
				r, low := g.nodes[i].core.Self(), g.nodes[i].core.LowestTicket(g.now, last[i]+1)
				a.log = append(a.log, func(_ clock.Instant, c *Core) { c.Checkpoint(r, low) })
			},
		}
		names := make([]string, 0, len(steps))
		for name := range steps {
			names = append(names, name)
		}
		slices.Sort(names)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			steps[rapid.SampledFrom(names).Draw(rt, "step")](rt)
			run(time.Duration(rapid.IntRange(0, 20).Draw(rt, "pause")) * 10 * time.Millisecond)
		}
		for d, l := range g.links {
			if l.cut && d[0] > d[1] {
				g.connect(d[0], d[1])
			}
		}
		for i, n := range g.nodes {
			a.take(g.now, i, n.core, len(a.log))
		}
		run(3 * time.Second)
		why := ""
		for range 100 {
			if why = g.agreed(); why == "" {
				return
			}
			run(50 * time.Millisecond)
		}
		rt.Fatal(why)
	})
}

// mostUnderWay is how long a promise may be on its way over a link of the ground,
// in steps of its clock, at each of the replicas that pass it on.
const mostUnderWay = 4 * 10 * time.Millisecond

// A fence that a replica has taken holds whatever is heard later from who has not,
// the fenced one itself included; it comes back as the next incarnation with all
// that it said, and streams stay.
func TestAFenceHolds(t *testing.T) {
	g := newGround(t, 1, 3, 1, Config{})
	g.say(20)
	old := g.nodes[2].core.Self()
	g.nodes[2].core.Put(g.now, Loads, "w", []byte("load"), 0)
	g.nodes[2].core.Put(g.now, Tickets, TicketKey(1), []byte("blocks"), time.Minute)
	g.settleWithin(time.Second)
	blocks := g.nodes[0].core.Log().Stream(g.engines[0].id).Digest()
	g.nodes[0].core.Fence(g.now, old)
	g.nodes[2].core.Put(g.now, Workers, "w", []byte("url"), 0) // it does not know yet
	g.cut(0, 2)                                                // so that the other passes on what it says
	g.run(100 * time.Millisecond)
	g.connect(0, 2)
	g.run(time.Second)
	for at := range g.nodes[0].pages {
		t.Errorf("shows %s of a fenced incarnation", at)
	}
	if d := g.nodes[0].core.Log().Stream(g.engines[0].id).Digest(); d != blocks {
		t.Error("the fence changed a stream")
	}
	g.nodes[2].core.Fence(g.now, old)
	g.nodes[2].core.Fence(g.now, old) // once more does nothing
	g.nodes[1].core.Fence(g.now, old)
	g.settleWithin(time.Second)
	if now := g.nodes[2].core.Self(); now.Inc != 1 || len(g.nodes[0].pages) != 3 || len(g.nodes[1].pages) != 3 {
		t.Errorf("came back as %v, of which are shown %v and %v", now, g.nodes[0].pages, g.nodes[1].pages)
	}
}

// Marks that were agreed on show who was led elsewhere by the same log, and no
// one else.
func TestMarksShowDivergence(t *testing.T) {
	g := newGround(t, 1, 3, 2, Config{})
	g.say(100)
	g.settleWithin(time.Second)
	g.run(time.Second)
	marks := g.nodes[0].core.Marks(g.now, 100)
	if len(marks) != 2 || len(g.nodes[0].core.Marks(g.now, 1)) != 1 {
		t.Fatalf("marks %v", marks)
	}
	first, second := g.nodes[0].core.Marks(g.now, 1), g.nodes[0].core.Marks(g.now, 1)
	if first[0].Stream == second[0].Stream {
		t.Errorf("only the marks of %v are told", first[0].Stream)
	}
	c := g.nodes[1].core
	if c.CompareMarks(marks); c.Stats().Diverged != 0 {
		t.Fatal("equal streams differ")
	}
	marks[0].Mark.Digest++
	if c.CompareMarks(marks); c.Stats().Diverged != 1 {
		t.Error("a stream with another base was not found")
	}
	marks[0].Mark.Skips++ // another log
	if c.CompareMarks(marks); c.Stats().Diverged != 1 {
		t.Error("streams that lost different batches were compared")
	}
}

func TestTicketKeysSortByNumber(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := rapid.Uint64().Draw(rt, "a"), rapid.Uint64().Draw(rt, "b")
		if x, y := TicketKey(a), TicketKey(b); TicketNo(x) != a || (a < b) != (bytes.Compare([]byte(x), []byte(y)) < 0) {
			rt.Fatalf("%d has key %x, %d has %x", a, x, b, y)
		}
	})
	if TicketNo("x") != 0 {
		t.Error("a number from no key")
	}
}
