package crdt

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

func snapshotOf(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *Stream) []byte {
	t.Helper()
	b, err := s.Snapshot()
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	return b
}

func presentIn(s *Stream) map[index.Change]bool {
	m := map[index.Change]bool{}
	s.Each(func(c index.Change) { c.Whole = false; m[c] = true })
	return m
}

// TestRestoredStreamsGoOnAlike: a copy made from a snapshot at any moment is
// and does from then on what the original is and does.
func TestRestoredStreamsGoOnAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := StreamConfig{Counted: rapid.Bool().Draw(t, "counted")}
		s, copied := NewStream(cfg), NewStream(cfg)
		ignore := func(index.Change) {}
		copied.Apply(7, []kv.Op{run(1, 1)}, ignore) // waits, here or for good
		step := func(ss ...*Stream) {
			ops := rapid.SliceOfN(rapid.Custom(drawOp), 0, 4).Draw(t, "ops")
			skip := rapid.IntRange(0, 6).Draw(t, "skip") == 0
			for _, s := range ss {
				if skip {
					s.Skip(s.Next(), s.Next()+1, ignore)
				} else {
					s.Apply(s.Next(), ops, ignore)
				}
			}
		}
		for range rapid.IntRange(0, 20).Draw(t, "before") {
			step(s)
		}
		s.Mark()
		if s.Next() <= 7 {
			copied.ahead.discard(Range{7, 7})
		}
		b := snapshotOf(t, s)
		if err := copied.Restore(b); err != nil {
			t.Fatal(err)
		}
		if again := snapshotOf(t, copied); !bytes.Equal(b, again) && s.Next() != 7 {
			t.Fatalf("snapshot of the copy:\n%x\nwant\n%x", again, b)
		}
		for range rapid.IntRange(0, 20).Draw(t, "after") {
			step(s, copied)
		}
		copied.base.check(t)
		if s.Digest() != copied.Digest() || s.Next() != copied.Next() ||
			!slices.Equal(s.Skips(), copied.Skips()) || !slices.Equal(s.Marks(), copied.Marks()) {
			t.Fatalf("at %d, digest %x, skips %v; the copy at %d, %x, %v",
				s.Next(), s.Digest(), s.Skips(), copied.Next(), copied.Digest(), copied.Skips())
		}
		if d := cmp.Diff(presentIn(s), presentIn(copied)); d != "" {
			t.Fatalf("present (-original +copy):\n%s", d)
		}
	})
}

func TestWhatWaitsOutlivesARestore(t *testing.T) {
	s, behind := NewStream(StreamConfig{}), NewStream(StreamConfig{})
	ignore := func(index.Change) {}
	for i := range uint64(5) {
		s.Apply(i, []kv.Op{run(i+1, 1)}, ignore)
	}
	behind.Apply(3, []kv.Op{run(4, 1)}, ignore)
	behind.Apply(5, []kv.Op{run(6, 1)}, ignore)
	behind.Skip(1, 2, ignore)
	behind.Skip(6, 6, ignore)
	behind.Apply(8, nil, ignore)
	if err := behind.Restore(snapshotOf(t, s)); err != nil {
		t.Fatal(err)
	}
	if want := []Range{{6, 6}}; behind.Next() != 7 || behind.Held(kv.HBM) != 6 || !slices.Equal(behind.Skips(), want) {
		t.Errorf("next %d, %d held, skips %v", behind.Next(), behind.Held(kv.HBM), behind.Skips())
	}
	if st := behind.Stats(); st.PendingBatches != 1 || len(behind.ahead.skips) != 0 {
		t.Errorf("%+v, skips that wait: %v", st, behind.ahead.skips)
	}
}

// TestRestoreRefuses checks that a stream stays as it was when it is given
// something else than a snapshot of its like.
func TestRestoreRefuses(t *testing.T) {
	s := NewStream(StreamConfig{Counted: true})
	s.Apply(0, []kv.Op{run(1, 20), run(5, 1), also(kv.CPU, 1, 2), also(kv.CPU, 2)}, seen{}.emit)
	s.Apply(1, []kv.Op{{Kind: kv.Insert, HasParent: true, Parent: 99, Blocks: []kv.Block{{Hash: 98}}}}, seen{}.emit)
	s.Skip(2, 3, seen{}.emit)
	good := snapshotOf(t, s)
	fresh := func(cfg StreamConfig) *Stream {
		r := NewStream(cfg)
		r.Apply(0, []kv.Op{run(1, 1)}, seen{}.emit)
		return r
	}
	refuse := func(what string, r *Stream, b []byte) {
		t.Helper()
		digest := r.Digest()
		if err := r.Restore(b); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", what, err)
		}
		if r.Digest() != digest || r.Next() != 1 {
			t.Errorf("%s changed the stream", what)
		}
	}
	refuse("a stream that counts otherwise", fresh(StreamConfig{}), good)
	refuse("more blocks than allowed", fresh(StreamConfig{Counted: true, MaxBlocks: 20}), good)
	for n := range good {
		refuse("a part of it", fresh(StreamConfig{Counted: true}), good[:n])
	}
	refuse("more than it", fresh(StreamConfig{Counted: true}), append(slices.Clone(good), 0))
	for i := range good {
		r := fresh(StreamConfig{Counted: true})
		bad := slices.Clone(good)
		bad[i] ^= 0x10
		// Position, skips and marks are outside the digest; what is restored is sound anyway.
		if err := r.Restore(bad); err == nil && r.Digest() != s.Digest() {
			t.Errorf("byte %d changed: another digest", i)
		}
		r.base.check(t)
	}
	if err := fresh(StreamConfig{Counted: true}).Restore(good); err != nil {
		t.Error(err)
	}
}

func FuzzRestore(f *testing.F) {
	s := NewStream(StreamConfig{Counted: true})
	f.Add(snapshotOf(f, s))
	s.Apply(0, []kv.Op{run(1, 20), run(5, 1), also(kv.CPU, 1, 2)}, seen{}.emit)
	window := also(kv.HBM, 3)
	window.Group = 3
	s.Apply(1, []kv.Op{window, {Kind: kv.Insert, HasParent: true, Parent: 99, Blocks: []kv.Block{{Hash: 98}}}}, seen{}.emit)
	window.Hashes[0] = 98
	s.Apply(2, []kv.Op{window}, seen{}.emit)
	s.Skip(4, 6, seen{}.emit)
	s.Apply(3, nil, seen{}.emit)
	s.Mark()
	f.Add(snapshotOf(f, s))
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewStream(StreamConfig{Counted: true, MaxBlocks: 1000})
		if s.Restore(b) != nil {
			return
		}
		s.base.check(t)
		again := NewStream(StreamConfig{Counted: true})
		if err := again.Restore(snapshotOf(t, s)); err != nil || again.Digest() != s.Digest() || again.Next() != s.Next() {
			t.Fatalf("%v; digest %x, next %d; want %x, %d", err, again.Digest(), again.Next(), s.Digest(), s.Next())
		}
		s.Apply(s.Next(), []kv.Op{run(1, 3), remove(0, 1), {Kind: kv.Clear, Tiers: 31}}, func(index.Change) {})
		s.base.check(t)
	})
}

func BenchmarkSnapshot(b *testing.B) {
	const blocks = 100_000
	s := NewStream(StreamConfig{Counted: true})
	for n := uint64(0); n < blocks; n += 500 {
		op := kv.Op{Root: kv.Key(n)}
		for i := range uint64(500) {
			op.Blocks = append(op.Blocks, kv.Block{Hash: kv.EngineHash(kv.Next(0, kv.Content(n+i))), Content: kv.Content(i)})
		}
		s.Apply(s.Next(), []kv.Op{op}, func(index.Change) {})
	}
	snapshot := snapshotOf(b, s)
	perBlock := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
		b.ReportMetric(float64(len(snapshot))/blocks, "B/block")
	}
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			snapshotOf(b, s)
		}
		perBlock(b)
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			if err := s.Restore(snapshot); err != nil {
				b.Fatal(err)
			}
		}
		perBlock(b)
	})
}
