package fleet

import (
	"math"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// naive is an occupied that has each entry by itself.
type naive map[kv.Key]*naiveEntry

type naiveEntry struct {
	users  int
	tokens float64
	ready  clock.Instant
}

func (n naive) add(p *Parts, ready clock.Instant) {
	for i := range p.entries() {
		e := n[p.entry(i)]
		if e == nil {
			e = &naiveEntry{tokens: p.entryTokens(i, i+1), ready: ready}
			n[p.entry(i)] = e
		}
		e.users++
	}
}

func (n naive) remove(p *Parts) {
	for i := range p.entries() {
		if e := n[p.entry(i)]; e.users > 1 {
			e.users--
		} else {
			delete(n, p.entry(i))
		}
	}
}

func (n naive) tokens() (sum float64) {
	for _, e := range n {
		sum += e.tokens
	}
	return sum
}

func (n naive) reach(p *Parts) (entries int, ready clock.Instant) {
	for i := range p.entries() {
		e := n[p.entry(i)]
		if e == nil {
			break
		}
		entries, ready = i+1, e.ready
	}
	return entries, ready
}

// checkBranches fails where a run is not as it should be.
func checkBranches(t *rapid.T, branches []branch, from int, users int32) {
	sum := int32(0)
	for _, b := range branches {
		if b.from != from || b.to <= from || b.users <= 0 || b.key != b.parts.entry(from) {
			t.Fatalf("a run %d to %d of %d users behind %d", b.from, b.to, b.users, from)
		}
		sum += b.users
		checkBranches(t, b.next, b.to, b.users)
	}
	if sum > users {
		t.Fatalf("%d users behind a run of %d", sum, users)
	}
}

// Whatever prompts come and go, a tree of runs tells what a table of all entries
// would.
func TestOccupiedIsATableOfEntries(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// Prompts are paths in a tree: each part goes one of two ways now and then.
		prompt := func() *Parts {
			p := &Parts{KeyTokens: 16}
			key := kv.Key(1)
			for range rapid.IntRange(0, 12).Draw(rt, "stretches") {
				way := kv.Content(rapid.IntRange(0, 1).Draw(rt, "way"))
				for range rapid.IntRange(1, 3*occupiedStride).Draw(rt, "length") {
					key = kv.Next(key, way)
					p.Keys = append(p.Keys, key)
				}
			}
			if rapid.Bool().Draw(rt, "ends") {
				each := rapid.Float64Range(1, 99).Draw(rt, "each")
				for i := range p.Keys {
					p.Ends = append(p.Ends, each*float64(i+1))
				}
			}
			return p
		}
		var o occupied
		n := make(naive)
		var in []*Parts
		for step := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if len(in) > 0 && rapid.IntRange(0, 2).Draw(rt, "remove") == 0 {
				i := rapid.IntRange(0, len(in)-1).Draw(rt, "whom")
				o.remove(in[i])
				n.remove(in[i])
				in = append(in[:i], in[i+1:]...)
			} else {
				p := prompt()
				if len(in) > 0 && rapid.Bool().Draw(rt, "again") {
					p = in[rapid.IntRange(0, len(in)-1).Draw(rt, "which")]
				}
				o.add(p, clock.Instant(step+1))
				n.add(p, clock.Instant(step+1))
				in = append(in, p)
			}
			if want := n.tokens(); math.Abs(o.tokens-want) > 1e-6 {
				rt.Fatalf("%v tokens, want %v", o.tokens, want)
			}
			for range 3 {
				p := prompt()
				got, ready := o.reach(p)
				if want, wantReady := n.reach(p); got != want || ready != wantReady {
					rt.Fatalf("%d entries ready at %d, want %d at %d", got, ready, want, wantReady)
				}
			}
			checkBranches(rt, o.first, 0, math.MaxInt32)
		}
		for _, p := range in {
			o.remove(p)
		}
		if len(o.first) > 0 || math.Abs(o.tokens) > 1e-6 {
			rt.Fatalf("%d branches and %v tokens of nothing", len(o.first), o.tokens)
		}
	})
}

// In the steady state prompts come and go without memory of their own.
func TestOccupiedAllocatesNothing(t *testing.T) {
	parts := func(shared, own, who int) *Parts {
		p := &Parts{KeyTokens: 16}
		key := kv.Key(1)
		for i := range shared + own {
			way := kv.Content(0)
			if i >= shared {
				way = kv.Content(who)
			}
			key = kv.Next(key, way)
			p.Keys = append(p.Keys, key)
		}
		return p
	}
	var o occupied
	a, b, c := parts(8000, 192, 1), parts(8000, 192, 2), parts(4000, 100, 3)
	round := func() {
		o.add(a, 1)
		o.add(b, 2)
		o.add(c, 3)
		o.remove(a)
		o.remove(c)
		o.remove(b)
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
