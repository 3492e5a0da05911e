package crdt

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// check verifies that a base's parts agree with each other.
func (b *base) check(t interface {
	Helper()
	Fatalf(string, ...any)
}) {
	t.Helper()
	var digest uint64
	var held, onTier [kv.NumTiers]int
	blocks, keys := 0, 0
	tied := map[uint32]uint32{}
	for i := range b.unused {
		e := b.load(i)
		if e.state == vacant {
			continue
		}
		if l := b.at(i).link(); !b.holes && e.group == 0 && e.copies.on(kv.HBM) > 0 && l.before() > 0 {
			tied[l.before()-1]++
			if !b.at(l.before() - 1).on(kv.HBM) {
				t.Fatalf("entry %d is in HBM and the one before it, %d, is not", i, l.before()-1)
			}
		}
		if e.empty() {
			t.Fatalf("entry %d has no copies", i)
		}
		if at, ok := b.findAt(place(uint64(e.hash), e.group), e.group, e.hash); !ok || at != i {
			t.Fatalf("entry %d is found at %d, %v", i, at, ok)
		}
		if _, waits := b.orphans[i]; waits != (e.state == unkeyed) {
			t.Fatalf("entry %d waits=%v in state %d", i, waits, e.state)
		}
		blocks++
		if e.keyed() {
			keys++
		}
		digest += b.sum(i, &e)
		for tier := range kv.Tier(kv.NumTiers) {
			n := e.copies.on(tier)
			if n > 0 {
				onTier[tier]++
			}
			if n > 0 && e.group == 0 {
				held[tier]++
			}
		}
	}
	for i := range b.unused {
		if got := b.at(i).link().tied(); !b.holes && got != tied[i] && got != maxTied {
			t.Fatalf("%d are tied to entry %d, and it says %d", tied[i], i, got)
		}
	}
	linked := 0
	for at, i := range b.waiting {
		for prev := uint32(0); i != 0; i = b.orphans[i-1].next {
			if o, ok := b.orphans[i-1]; !ok || o.parent != at || o.prev != prev {
				t.Fatalf("orphan %d of %v: %+v", i-1, at, o)
			}
			prev = i
			linked++
		}
	}
	if digest != b.digest || held != b.held || onTier != b.onTier || blocks != b.blocks ||
		blocks != b.byHash.used || keys != b.byKey.used || linked != len(b.orphans) {
		t.Fatalf("digest %x of %x, held %v of %v, blocks %d of %d, %d by hash; keys %d of %d; orphans %d of %d",
			b.digest, digest, b.held, held, b.blocks, blocks, b.byHash.used, b.byKey.used, keys, linked, len(b.orphans))
	}
}

func TestBaseAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counted := rapid.Bool().Draw(t, "counted")
		s := NewStream(StreamConfig{Counted: counted})
		n := &naive{counted: counted, blocks: map[node]*naiveBlock{}}
		x := shown{t, map[index.Change]bool{}}
		for seq := range rapid.SampledFrom([]uint64{3, 10, 60}).Draw(t, "batches") {
			ops := rapid.SliceOfN(rapid.Custom(drawOp), 0, 4).Draw(t, "ops")
			if got := s.Apply(seq, ops, x.emit); got != Applied {
				t.Fatalf("batch %d: %v", seq, got)
			}
			n.apply(ops)
			s.base.check(t)
			if d := cmp.Diff(n.present(), x.on); d != "" {
				t.Fatalf("after batch %d (-want +got):\n%s", seq, d)
			}
			if s.base.blocks != len(n.blocks) {
				t.Fatalf("%d blocks, want %d", s.base.blocks, len(n.blocks))
			}
		}
		again := map[index.Change]bool{}
		s.Each(func(c index.Change) { c.Whole = false; again[c] = true })
		if d := cmp.Diff(x.on, again); d != "" {
			t.Fatalf("Each (-want +got):\n%s", d)
		}
	})
}

// TestSchedules gives one log to three replicas, each with its own order,
// duplicates, losses and skips: wherever they stand at the same W with the
// same skips, they have the same digest; and each is where its own log leads.
func TestSchedules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(drawOp), 0, 3), 4, 24).Draw(t, "log")
		skips := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Range {
			from := rapid.IntRange(0, len(log)-1).Draw(t, "from")
			return Range{uint64(from), uint64(rapid.IntRange(from, min(from+3, len(log)-1)).Draw(t, "to"))}
		}), 0, 2).Draw(t, "skips")
		digests := map[[2]uint64]uint64{}
		for range 3 {
			s := NewStream(StreamConfig{MaxPendingBytes: 2000})
			x := shown{t, map[index.Change]bool{}}
			observe := func() {
				at := [2]uint64{s.Next(), hashRanges(s.Skips())}
				if d, seen := digests[at]; seen && d != s.Digest() {
					t.Fatalf("W %d, skips %v: two digests", s.Next()-1, s.Skips())
				}
				digests[at] = s.Digest()
			}
			for range rapid.SampledFrom([]int{5, 30, 80}).Draw(t, "deliveries") {
				i := rapid.IntRange(-len(skips), len(log)-1).Draw(t, "what")
				next := s.Next()
				if i < 0 {
					s.Skip(skips[-i-1].From, skips[-i-1].To, x.emit)
				} else if got := s.Apply(uint64(i), log[i], x.emit); (got == Applied) != (uint64(i) == next) ||
					uint64(i) < next && got != Duplicate {
					t.Fatalf("batch %d at %d: %v", i, next, got)
				}
				observe()
			}
			for s.Next() < uint64(len(log)) { // what was lost comes again
				s.Apply(s.Next(), log[s.Next()], x.emit)
				observe()
			}
			if st := s.Stats(); st.PendingBatches != 0 || st.PendingBytes != 0 || len(s.ahead.skips) != 0 {
				t.Fatalf("left waiting: %+v", st)
			}
			n := &naive{blocks: map[node]*naiveBlock{}}
			for i, ops := range log {
				if !inRanges(s.Skips(), uint64(i)) {
					n.apply(ops)
				}
			}
			s.base.check(t)
			if d := cmp.Diff(n.present(), x.on); d != "" {
				t.Fatalf("(-want +got):\n%s", d)
			}
		}
	})
}

func TestRangesMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rs []Range
		in := map[uint64]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			from := rapid.Uint64Range(0, 30).Draw(t, "from")
			to := rapid.Uint64Range(from, from+5).Draw(t, "to")
			rs = addRange(rs, Range{from, to})
			for i := from; i <= to; i++ {
				in[i] = true
			}
		}
		var got []uint64
		for i, r := range rs {
			if i > 0 && rs[i-1].To+1 >= r.From {
				t.Fatalf("%v touch", rs)
			}
			for n := r.From; n <= r.To; n++ {
				got = append(got, n)
			}
		}
		if want := slices.Sorted(maps.Keys(in)); !slices.Equal(got, want) {
			t.Fatalf("%v hold %v, want %v", rs, got, want)
		}
	})
}
