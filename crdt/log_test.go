package crdt

import (
	"errors"
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

func id(n int) StreamID { return StreamID{Target: kv.Target{Worker: kv.WorkerID(n)}} }

func (l *Log) check(t interface {
	Helper()
	Fatalf(string, ...any)
}) {
	t.Helper()
	pending, ring, batches, bases := 0, 0, 0, int64(0)
	for _, s := range l.All() {
		st := s.Stats()
		pending += st.PendingBytes
		ring += st.RingBytes
		batches += st.RingBatches
		bases += st.Bytes
		s.base.check(t)
	}
	if st := l.Stats(); pending != st.PendingBytes || ring != st.RingBytes || bases != st.BaseBytes || batches != len(l.oldest) ||
		pending > l.pending.max || ring > l.cfg.MaxRingBytes {
		t.Fatalf("streams: %d pending, %d in rings (%d batches of %d), %d in bases; the log: %+v",
			pending, ring, batches, len(l.oldest), bases, st)
	}
}

// TestLogKnowsItsMemory does everything at random with small limits.
func TestLogKnowsItsMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLog(LogConfig{MaxPendingBytes: 1000, MaxRingBytes: 2000, MaxBaseBytes: rapid.SampledFrom([]int64{1, 8000, 1 << 30}).Draw(t, "max")})
		shownBy := map[int]shown{}
		for range rapid.SampledFrom([]int{10, 100}).Draw(t, "steps") {
			n := rapid.IntRange(0, 3).Draw(t, "stream")
			if l.Stream(id(n)) == nil {
				shownBy[n] = shown{t, map[index.Change]bool{}}
			}
			s := l.Open(id(n), StreamConfig{})
			switch k := rapid.IntRange(0, 30).Draw(t, "what"); {
			case k < 20:
				seq := s.Next() + uint64(max(0, rapid.IntRange(-3, 3).Draw(t, "ahead")))
				s.Apply(seq, rapid.SliceOfN(rapid.Custom(drawOp), 0, 3).Draw(t, "ops"), shownBy[n].emit)
			case k < 22:
				s.Skip(s.Next(), s.Next()+1, shownBy[n].emit)
			case k < 24:
				l.Close(id(n))
			case k < 26:
				s.Start(uint64(k))
				shownBy[n] = shown{t, map[index.Change]bool{}}
			case k < 28:
				if b, err := s.Snapshot(); err == nil {
					if err := s.Restore(b); err != nil {
						t.Fatal(err)
					}
					shownBy[n] = shown{t, presentIn(s)}
				} else if s.Truncated() == 0 {
					t.Fatal(err)
				}
			default:
				l.Trim(func(at StreamID, c index.Change) { shownBy[int(at.Target.Worker)].emit(c) })
				if st := l.Stats(); st.BaseBytes > max(l.cfg.MaxBaseBytes, 1000) {
					t.Fatalf("after Trim: %+v", st)
				}
			}
			l.check(t)
		}
		for at, s := range l.All() {
			if n := int(at.Target.Worker); len(presentIn(s)) != len(shownBy[n].on) {
				t.Fatalf("stream %d: %d present, %d shown", n, len(presentIn(s)), len(shownBy[n].on))
			}
			l.Close(at)
		}
		if st := l.Stats(); st.Streams+st.PendingBytes+st.RingBytes+int(st.BaseBytes)+len(l.oldest) != 0 {
			t.Fatalf("left behind: %+v", st)
		}
	})
}

func TestTrimTakesTheColdestTier(t *testing.T) {
	l := NewLog(LogConfig{MaxBaseBytes: 100_000})
	ignore := func(index.Change) {}
	insert := func(n int, first, blocks uint64) {
		s := l.Open(id(n), StreamConfig{})
		s.Apply(s.Next(), []kv.Op{run(first, blocks)}, ignore)
	}
	insert(1, 1, 1000)
	insert(2, 1, 1000)
	s2 := l.Open(id(2), StreamConfig{})
	s2.Apply(1, []kv.Op{also(kv.Disk, 1, 2, 3)}, ignore)
	s2.Mark()
	insert(1, 1001, 10)
	for n := uint64(1011); l.Stats().BaseBytes <= l.cfg.MaxBaseBytes; n += 100 {
		insert(1, n, 100)
	}
	gone := map[StreamID]int{}
	l.Trim(func(at StreamID, c index.Change) {
		if c.Present || c.Tier != kv.HBM {
			t.Errorf("%v: %+v", at, c)
		}
		gone[at]++
	})
	st := l.Stats()
	if len(gone) != 1 || gone[id(2)] != 1000 || st.Truncations != 1 || st.Truncated != 1 || st.BaseBytes > l.cfg.MaxBaseBytes {
		t.Errorf("%v gone, %+v", gone, st)
	}
	if s2.Truncated() != kv.HBM.Mask() || s2.Held(kv.Disk) != 3 || len(s2.Marks()) != 0 {
		t.Errorf("%b truncated, %d left on disk, marks %v", s2.Truncated(), s2.Held(kv.Disk), s2.Marks())
	}
	if _, err := s2.Snapshot(); !errors.Is(err, ErrTruncated) {
		t.Errorf("snapshot of a truncated stream: %v", err)
	}
	insert(2, 2001, 5)
	if s2.Held(kv.HBM) != 0 || s2.Next() != 3 {
		t.Errorf("%d held on a truncated tier, next %d", s2.Held(kv.HBM), s2.Next())
	}
	if entries, ok := s2.From(2); !ok {
		t.Error("the ring of a truncated stream is gone")
	} else {
		for e := range entries {
			if e.From != 2 || len(e.Ops[0].Blocks) != 5 {
				t.Errorf("%+v", e)
			}
		}
	}
	s2.Start(0)
	insert(2, 1, 5)
	if s2.Held(kv.HBM) != 5 || s2.Truncated() != 0 {
		t.Error("still truncated after a new start")
	}
}

func TestRingsShareTheirBudget(t *testing.T) {
	l := NewLog(LogConfig{MaxRingBytes: 100 * opBytes([]kv.Op{run(1, 1)})})
	a, b := l.Open(id(1), StreamConfig{}), l.Open(id(2), StreamConfig{})
	for range 100 { // b is three times as fast
		for _, s := range []*Stream{a, b, b, b} {
			s.Apply(s.Next(), []kv.Op{run(1, 1)}, func(index.Change) {})
		}
	}
	if a, b := a.Stats().RingBatches, b.Stats().RingBatches; a != 25 || b != 75 {
		t.Errorf("%d and %d batches kept, want 25 and 75", a, b)
	}
	for seq, want := range map[uint64]bool{74: false, 75: true, 99: true, 100: true, 101: false} {
		if _, ok := a.From(seq); ok != want {
			t.Errorf("From(%d) is %v", seq, ok)
		}
	}
	if st := l.Stats(); st.RingDropped != 300 {
		t.Errorf("%+v", st)
	}
	alone := NewStream(StreamConfig{})
	alone.Apply(0, nil, nil)
	if _, ok := alone.From(0); ok {
		t.Error("a stream alone keeps batches")
	}
	if _, ok := alone.From(1); !ok {
		t.Error("nothing to catch up with is no reason for a snapshot")
	}
}

func TestPendingIsSharedToo(t *testing.T) {
	batch := []kv.Op{run(1, 1)}
	l := NewLog(LogConfig{MaxPendingBytes: 2 * opBytes(batch)})
	for i, want := range []Outcome{Pending, Pending, Overflow} {
		if got := l.Open(id(i), StreamConfig{}).Apply(1, batch, nil); got != want {
			t.Errorf("stream %d: %v, want %v", i, got, want)
		}
	}
	l.Close(id(0))
	if got := l.Open(id(2), StreamConfig{}).Apply(1, batch, nil); got != Pending {
		t.Errorf("after one is closed: %v", got)
	}
	if st := l.Stats(); st.PendingRefused != 1 {
		t.Errorf("%+v", st)
	}
}

// TestMemoryStaysFlat does the same amount of churn again and again, with
// other blocks each time.
func TestMemoryStaysFlat(t *testing.T) {
	l := NewLog(LogConfig{MaxRingBytes: 1 << 20})
	ignore := func(index.Change) {}
	var early, late int64
	const rounds, held = 60, 800
	for round := range uint64(rounds) {
		for n := range 3 {
			s := l.Open(id(n), StreamConfig{Counted: true})
			for at := range uint64(20) {
				first := (round*20+at)*200 + 1
				ops := []kv.Op{run(first, 200)}
				if at == 0 {
					ops[0].HasParent = round%2 == 0 // half of them never get a key
				}
				out := kv.Op{Kind: kv.Remove}
				for h := max(held, first) - held; h < max(held, first+200)-held; h++ {
					out.Hashes = append(out.Hashes, kv.EngineHash(h))
				}
				s.Apply(s.Next(), append(ops, out), ignore)
				s.Apply(s.Next()+2, nil, ignore) // sometimes a gap
				if at%7 == 0 {
					s.Skip(s.Next(), s.Next()+1, ignore)
				}
			}
			switch (round + uint64(n)) % 5 {
			case 0:
				s.Start(0)
			case 1:
				l.Close(id(n))
			case 2:
				s.Apply(s.Next(), []kv.Op{{Kind: kv.Clear, Tiers: 31}}, ignore)
			case 3:
				if err := s.Restore(snapshotOf(t, s)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if round%10 == 0 {
			l.check(t)
		}
		st := l.Stats()
		all := st.BaseBytes + int64(st.RingBytes+st.PendingBytes)
		if round < rounds/2 {
			early = max(early, all)
		} else {
			late = max(late, all)
		}
	}
	if late > early*11/10 {
		t.Errorf("at most %d B in the first half of the rounds, %d B in the second", early, late)
	}
}

// TestAShrunkenBaseIsSmall: what a full cache needed is given back when most
// of it is gone.
func TestAShrunkenBaseIsSmall(t *testing.T) {
	s, x := NewStream(StreamConfig{}), seen{}
	s.Apply(0, []kv.Op{run(1, 100_000)}, x.emit)
	full := s.Stats().Bytes
	for first := kv.EngineHash(1); first < 98_000; first += 1000 {
		out := kv.Op{Kind: kv.Remove}
		for h := range kv.EngineHash(1000) {
			out.Hashes = append(out.Hashes, first+h)
		}
		s.Apply(s.Next(), []kv.Op{out}, x.emit)
	}
	if st := s.Stats(); st.Blocks != 2000 || st.Bytes > full/8 || len(x[kv.HBM]) != 2000 {
		t.Errorf("%+v, full it had %d B", st, full)
	}
}
