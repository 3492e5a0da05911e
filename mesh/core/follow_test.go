package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/kv"
)

// followAll has some replicas follow all engines.
func (g *ground) followAll(nodes ...*node) {
	for _, n := range nodes {
		for _, e := range g.engines {
			n.core.Follow(g.now, e.id.Target)
		}
	}
}

// A replica that begins to follow a target that its peers know has what they hold
// within a round trip and what precedes it, though nobody has anything new to
// say; and so has one that took it out and has it back.
func TestFollowedAtOnce(t *testing.T) {
	g := newGround(t, 2, 3, 3, Config{Compare: time.Hour})
	g.followAll(g.nodes...)
	g.run(3 * time.Second)
	back := g.engines[0].id.Target
	late := g.nodes[0]
	if late.core.Reads(back.Worker) {
		late = g.nodes[1]
	}
	late.core.Unfollow(back)
	g.say(100)
	g.settleWithin(100 * time.Millisecond)
	g.run(2 * time.Minute)
	if late.core.Log().Stream(g.engines[0].id) != nil {
		t.Error("what nobody follows here is held after two minutes")
	}
	if _, ok := late.core.Boot(back); ok {
		t.Error("so is its boot")
	}
	late.core.Follow(g.now, back)
	g.settleWithin(200 * time.Millisecond)

	// Within a minute, nothing need be asked for.
	asked := late.core.Stats().Asked
	late.core.Unfollow(back)
	g.run(30 * time.Second)
	late.core.Follow(g.now, back)
	g.run(time.Minute)
	if g.settleWithin(50 * time.Millisecond); late.core.Stats().Asked != asked {
		t.Error("it asked for what it held")
	}
}

// Whoever lets go of a target last, it is gone from all a while later: nobody is
// given it back by one that had it a little longer. A peer that still follows it
// keeps it, alone.
func TestLeftTargetsDoNotComeBack(t *testing.T) {
	g := newGround(t, 2, 4, 3, Config{Compare: time.Second})
	g.followAll(g.nodes...)
	g.run(3 * time.Second)
	g.say(100)
	g.settleWithin(100 * time.Millisecond)
	gone, alone := g.engines[0].id, g.engines[1].id
	keeper := g.nodes[3]
	for _, n := range g.nodes {
		n.core.Unfollow(gone.Target)
		if n != keeper {
			n.core.Unfollow(alone.Target)
		}
		g.run(20 * time.Second) // others compare with those that have it still
	}
	g.engines = g.engines[1:2]
	g.engines[0].kept = 0 // nobody reads it
	g.run(2 * time.Minute)
	for _, n := range g.nodes {
		if s := n.core.Log().Stream(gone); s != nil {
			t.Errorf("%s still holds what nobody follows", n.name())
		}
		if s := n.core.Log().Stream(alone); (s != nil) != (n == keeper) {
			t.Errorf("%s holds what %s follows: %v", n.name(), keeper.name(), s != nil)
		}
		if got := n.core.tables[Boots].Len(); got > 2 {
			t.Errorf("%s has %d rows of boots", n.name(), got)
		}
	}
}

// However often engines start anew, what peers are told of the numbers of their
// logs is of those that are held; and one that met its bound learns the rest
// again.
func TestNumbersOfLogsAreBounded(t *testing.T) {
	const lives, most = 200, 8
	g := newGround(t, 3, 2, 1, Config{Keep: time.Second, Limits: Limits{Streams: most}})
	g.run(3 * time.Second)
	for i := range lives {
		e := &engine{id: g.engines[0].id, kept: 1000}
		e.id.Boot = kv.Boot(1000 + i)
		g.engines[0] = e
		e.say(g.rand)
		g.run(400 * time.Millisecond)
	}
	g.settleWithin(time.Second)
	for _, n := range g.nodes {
		if len(n.core.numbers) > most {
			t.Errorf("%s has %d numbers", n.name(), len(n.core.numbers))
		}
		for name, p := range n.core.peers {
			if len(p.numbers) > 2*most {
				t.Errorf("%s knows %d numbers of %s", n.name(), len(p.numbers), name)
			}
		}
	}
	for range 2 {
		g.say(1)
		g.settleWithin(time.Second)
	}
	g.cut(0, 1)
	g.connect(0, 1)
	g.say(1)
	g.settleWithin(100 * time.Millisecond)
	if t.Failed() {
		t.Log(fmt.Sprint(g.nodes[0].core.Stats(), g.nodes[1].core.Stats()))
	}
}
