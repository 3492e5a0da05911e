package crdt

import (
	"slices"
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// seen is the keys that are present on each tier, in group 0.
type seen map[kv.Tier]map[kv.Key]bool

func (s seen) emit(c index.Change) {
	if s[c.Tier] == nil {
		s[c.Tier] = map[kv.Key]bool{}
	}
	if c.Present {
		s[c.Tier][c.Key] = true
	} else {
		delete(s[c.Tier], c.Key)
	}
}

// run returns an Insert of n blocks with hashes from first on and contents
// equal to the hashes.
func run(first, n uint64) kv.Op {
	op := kv.Op{Root: 1, HasParent: first > 1, Parent: kv.EngineHash(first - 1)}
	for h := first; h < first+n; h++ {
		op.Blocks = append(op.Blocks, kv.Block{Hash: kv.EngineHash(h), Content: kv.Content(h)})
	}
	return op
}

func remove(t kv.Tier, hashes ...kv.EngineHash) kv.Op {
	return kv.Op{Kind: kv.Remove, Tier: t, Hashes: hashes}
}

func also(t kv.Tier, hashes ...kv.EngineHash) kv.Op {
	return kv.Op{Kind: kv.Also, Tier: t, Hashes: hashes}
}

func TestLateParentCascades(t *testing.T) {
	const n = 200_000 // far deeper than a stack would bear
	s, x := NewStream(StreamConfig{}), seen{}
	for h := uint64(n); h > 1; h -= 8000 {
		first := max(2, h-7999)
		s.Apply(s.Next(), []kv.Op{run(first, h-first+1)}, x.emit)
		if first == 2 {
			break
		}
	}
	if st := s.Stats(); st.Unkeyed != n-1 || len(x[kv.HBM]) != 0 {
		t.Fatalf("%+v, %d shown", st, len(x[kv.HBM]))
	}
	s.Apply(s.Next(), []kv.Op{run(1, 1)}, x.emit)
	key := kv.Key(1)
	for h := range kv.Content(n) {
		if key = kv.Next(key, h+1); !x[kv.HBM][key] {
			t.Fatalf("block %d has no key or another one", h+1)
		}
	}
	if st := s.Stats(); st.Unkeyed != 0 || s.Held(kv.HBM) != n {
		t.Fatalf("%+v", st)
	}
	inOrder := NewStream(StreamConfig{})
	inOrder.Apply(0, []kv.Op{run(1, n)}, seen{}.emit)
	if s.Digest() != inOrder.Digest() {
		t.Error("another digest than that of the same blocks told in order")
	}
}

func TestSiblingsOfALateParent(t *testing.T) {
	s, x := NewStream(StreamConfig{}), seen{}
	for h := uint64(1); h <= 7; h++ {
		op := run(h, 1)
		op.HasParent, op.Parent = true, 100
		s.Apply(s.Next(), []kv.Op{op}, x.emit)
	}
	s.Apply(s.Next(), []kv.Op{remove(0, 4, 1, 7)}, x.emit) // inside, and both ends
	if st := s.Stats(); st.Unkeyed != 4 || len(x[kv.HBM]) != 0 {
		t.Errorf("%+v, %v", st, x)
	}
	s.Apply(s.Next(), []kv.Op{{Root: 1, Blocks: []kv.Block{{Hash: 100}}}}, x.emit)
	if st := s.Stats(); st.Unkeyed != 0 || len(x[kv.HBM]) != 5 {
		t.Errorf("%+v, %v", st, x)
	}
}

func TestCopiesKeepFalseHolesOut(t *testing.T) {
	first := kv.Next(1, 1)
	for _, c := range []struct {
		name    string
		counted bool
		ops     []kv.Op
		held    bool
	}{
		{"two copies, one removed", true, []kv.Op{run(1, 1), run(1, 1), remove(0, 1)}, true},
		{"two copies, both removed", true, []kv.Op{run(1, 1), run(1, 1), remove(0, 1, 1)}, false},
		{"a set knows no copies", false, []kv.Op{run(1, 1), run(1, 1), remove(0, 1)}, false},
		{"removed once too often", true, []kv.Op{run(1, 1), remove(0, 1, 1), run(1, 1)}, true},
		{"removed before it came", true, []kv.Op{remove(0, 1), run(1, 1)}, true},
		{"another tier's copy", true, []kv.Op{run(1, 1), also(kv.CPU, 1), remove(kv.CPU, 1)}, true},
		{"two names of one key", false, []kv.Op{run(1, 1),
			{Root: 1, Blocks: []kv.Block{{Hash: 99, Content: 1}}}, remove(0, 1)}, true},
		{"both names gone", false, []kv.Op{run(1, 1),
			{Root: 1, Blocks: []kv.Block{{Hash: 99, Content: 1}}}, remove(0, 1, 99)}, false},
		{"other tiers cleared", false, []kv.Op{run(1, 1), {Kind: kv.Clear, Tiers: kv.CPU.Mask()}}, true},
		{"cleared", true, []kv.Op{run(1, 1), run(1, 1), {Kind: kv.Clear, Tiers: kv.HBM.Mask()}}, false},
	} {
		s, x := NewStream(StreamConfig{Counted: c.counted}), seen{}
		for i, op := range c.ops {
			s.Apply(uint64(i), []kv.Op{op}, x.emit)
		}
		if x[kv.HBM][first] != c.held {
			t.Errorf("%s: held is %v", c.name, !c.held)
		}
	}
}

func TestCountsSaturate(t *testing.T) {
	s, x := NewStream(StreamConfig{Counted: true}), seen{}
	for range 300 {
		s.Apply(s.Next(), []kv.Op{run(1, 1)}, x.emit)
	}
	for i := range 255 {
		if s.Held(kv.HBM) != 1 {
			t.Fatalf("gone after %d removals", i)
		}
		s.Apply(s.Next(), []kv.Op{remove(0, 1)}, x.emit)
	}
	if s.Held(kv.HBM) != 0 || s.Digest() != 0 || s.Stats().Bytes > 100 {
		t.Errorf("%d held, digest %x, %+v", s.Held(kv.HBM), s.Digest(), s.Stats())
	}
}

func TestMoveNeedsOneBatch(t *testing.T) {
	s, x := NewStream(StreamConfig{}), seen{}
	s.Apply(0, []kv.Op{run(1, 2)}, x.emit)
	s.Apply(1, []kv.Op{remove(0, 1), also(kv.CPU, 1)}, x.emit)
	s.Apply(2, []kv.Op{remove(0, 2)}, x.emit)
	s.Apply(3, []kv.Op{also(kv.CPU, 2)}, x.emit) // too late: nobody knows its key any more
	if len(x[kv.HBM]) != 0 || len(x[kv.CPU]) != 1 || !x[kv.CPU][kv.Next(1, 1)] {
		t.Errorf("%v", x)
	}
}

func TestWindowedGroups(t *testing.T) {
	var got []index.Change
	emit := func(c index.Change) { c.Whole = false; got = append(got, c) }
	s := NewStream(StreamConfig{})
	window := func(h kv.EngineHash) kv.Op {
		return kv.Op{Kind: kv.Also, Group: 3, Hashes: []kv.EngineHash{h}}
	}
	s.Apply(0, []kv.Op{window(2)}, emit) // group 0 doesn't know it: nothing
	s.Apply(1, []kv.Op{run(2, 1), window(2)}, emit)
	if st := s.Stats(); len(got) != 0 || st.Unkeyed != 2 {
		t.Fatalf("%+v, %v", st, got)
	}
	s.Apply(2, []kv.Op{run(1, 1)}, emit)
	key := kv.Next(kv.Next(1, 1), 2)
	for _, group := range []uint16{0, 3} {
		if !slices.Contains(got, index.Change{Key: key, Group: group, Present: true}) {
			t.Errorf("group %d has no key: %v", group, got)
		}
	}
}

// TestMainGroupByAnyNumber: an engine with sliding windows in its group 0 and
// main attention in group 2 is matched on group 2.
func TestMainGroupByAnyNumber(t *testing.T) {
	s := NewStream(StreamConfig{})
	var got []index.Change
	emit := func(c index.Change) { c.Whole = false; got = append(got, c) }
	insert := run(1, 1)
	insert.Group = 2
	sliding := also(kv.HBM, 1)
	s.Apply(0, []kv.Op{sliding}, emit) // nobody knows it yet
	s.Apply(1, []kv.Op{insert, sliding}, emit)
	third := also(kv.HBM, 1)
	third.Group = 1
	s.Apply(2, []kv.Op{third, remove(kv.HBM, 1)}, emit)
	key := kv.Next(1, 1)
	want := []index.Change{{Key: key, Present: true}, {Key: key, Group: 2, Present: true},
		{Key: key, Group: 1, Present: true}, {Key: key, Group: 2}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s.Group(2) != 0 || s.Group(0) != 2 || s.Group(1) != 1 || s.Held(kv.HBM) != 1 {
		t.Errorf("groups 2, 0, 1 are %d, %d, %d; %d held", s.Group(2), s.Group(0), s.Group(1), s.Held(kv.HBM))
	}
	s.Start(0)
	s.Apply(0, []kv.Op{run(1, 1)}, emit)
	if s.Group(0) != 0 {
		t.Error("a new start remembers the old groups")
	}
}

func TestOwnParentIsRefused(t *testing.T) {
	s, x := NewStream(StreamConfig{}), seen{}
	op := run(1, 1)
	op.HasParent, op.Parent = true, 1
	s.Apply(0, []kv.Op{op}, x.emit)
	if st := s.Stats(); st.Refused != 1 || st.Blocks != 0 {
		t.Errorf("%+v", st)
	}
}

func TestBlocksAreBounded(t *testing.T) {
	s, x := NewStream(StreamConfig{MaxBlocks: 10}), seen{}
	s.Apply(0, []kv.Op{run(1, 8), run(9, 8)}, x.emit)
	s.Apply(1, []kv.Op{run(1, 8)}, x.emit) // known ones need no room
	if st := s.Stats(); st.Blocks != 10 || st.Refused != 1 || len(x[kv.HBM]) != 10 {
		t.Errorf("%+v", st)
	}
}

func TestPendingIsBounded(t *testing.T) {
	s, x := NewStream(StreamConfig{MaxPendingBytes: 500}), seen{}
	want := []Outcome{Pending, Pending, Overflow}
	for i, w := range want {
		if got := s.Apply(uint64(i+1), []kv.Op{run(1, 1)}, x.emit); got != w {
			t.Errorf("batch %d: %v, want %v", i+1, got, w)
		}
	}
	if got := s.Apply(2, nil, x.emit); got != Duplicate {
		t.Errorf("a batch that waits came again: %v", got)
	}
	if got := s.Apply(0, nil, x.emit); got != Applied || s.Next() != 3 || s.Stats().PendingBytes != 0 {
		t.Errorf("%v, next %d, %+v", got, s.Next(), s.Stats())
	}
	if got := s.Apply(endOfLog, nil, x.emit); got != Overflow {
		t.Errorf("a batch that can have no successor: %v", got)
	}
}

func TestSkips(t *testing.T) {
	s, x := NewStream(StreamConfig{}), seen{}
	steps := []struct{ got, want Outcome }{
		{s.Apply(2, nil, x.emit), Pending},
		{s.Skip(1, 3, x.emit), Pending}, // batch 2 gives way
		{s.Apply(3, nil, x.emit), Duplicate},
		{s.Apply(0, nil, x.emit), Applied}, // and so are 1 to 3
		{s.Skip(2, 3, x.emit), Duplicate},
		{s.Skip(2, 5, x.emit), Applied}, // 4 and 5
		{s.Skip(9, 8, x.emit), Duplicate},
		{s.Skip(9, endOfLog, x.emit), Overflow},
	}
	for i, c := range steps {
		if c.got != c.want {
			t.Errorf("step %d: %v, want %v", i, c.got, c.want)
		}
	}
	if want := []Range{{1, 5}}; s.Next() != 6 || !slices.Equal(s.Skips(), want) {
		t.Errorf("next %d, skips %v", s.Next(), s.Skips())
	}
	for i := uint64(10); ; i += 2 {
		if got := s.Skip(i, i, x.emit); got == Overflow {
			break
		} else if i > 4*maxSkips {
			t.Fatal("skips have no limit")
		}
	}
	s.Start(5)
	if want := []Range{{0, 4}}; s.Next() != 5 || !slices.Equal(s.Skips(), want) {
		t.Errorf("next %d, skips %v after a start at 5", s.Next(), s.Skips())
	}
}

func TestMarks(t *testing.T) {
	s, x := NewStream(StreamConfig{}), seen{}
	for i := range uint64(300) {
		s.Apply(i, []kv.Op{run(i+1, 1)}, x.emit)
	}
	s.Mark()
	s.Mark()
	s.Skip(300, 600, x.emit)
	s.Apply(601, nil, x.emit)
	var at []uint64
	for _, m := range s.Marks() {
		at = append(at, m.W)
		if (m.Skips == 0) != (m.W < 300) || m.Digest == 0 {
			t.Errorf("%+v", m)
		}
	}
	if want := []uint64{0, 256, 299, 600}; !slices.Equal(at, want) {
		t.Errorf("marks at %v, want %v", at, want)
	}
	for i := uint64(602); i < 602+70*markEvery; i++ {
		s.Apply(i, nil, x.emit)
	}
	if m := s.Marks(); len(m) != maxMarks || m[maxMarks-1].W%markEvery != 0 {
		t.Errorf("%d marks, last %+v", len(m), m[len(m)-1])
	}
}

func BenchmarkApply(b *testing.B) {
	for _, held := range []uint64{0, 100_000} {
		name := map[uint64]string{0: "into an empty base", 100_000: "into 100k blocks"}[held]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			s := NewStream(StreamConfig{Counted: true})
			n := 0
			emit := func(index.Change) { n++ }
			s.Apply(s.Next(), []kv.Op{run(1, held)}, emit)
			in, out := run(held+1, 750), kv.Op{Kind: kv.Remove}
			in.HasParent = held > 0
			for _, blk := range in.Blocks {
				out.Hashes = append(out.Hashes, blk.Hash)
			}
			for b.Loop() {
				s.Apply(s.Next(), []kv.Op{in}, emit)
				b.StopTimer()
				s.Apply(s.Next(), []kv.Op{out}, emit)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/750, "ns/block")
		})
	}
	b.Run("growing to 1M", func(b *testing.B) {
		for b.Loop() {
			s := NewStream(StreamConfig{Counted: true})
			for first := uint64(1); first < 1_000_000; first += 750 {
				s.Apply(s.Next(), []kv.Op{run(first, 750)}, func(index.Change) {})
			}
			st := s.Stats()
			b.ReportMetric(float64(st.Bytes)/float64(st.Blocks), "B/block")
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/block")
	})
}
