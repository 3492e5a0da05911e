package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
)

// TestHeldIsBounded: whatever a peer says, a replica holds no more than its limits
// let it, and counts what it refused.
func TestHeldIsBounded(t *testing.T) {
	l := Limits{Streams: 4, PageValues: 4, TableRows: 4, Replicas: 4, Wants: 4, SnapshotBytes: 1000}
	small, large := New(Config{Self: Replica{Name: "small"}, Limits: l}, new(Shown)), New(Config{Self: Replica{Name: "large"}}, new(Shown))
	id := func(i int) crdt.StreamID {
		return crdt.StreamID{Target: kv.Target{Worker: kv.WorkerID(i), Rank: kv.NoRank}, Boot: 1}
	}
	batch := []kv.Op{{Kind: kv.Insert, Root: kv.Root("m", "", ""), Blocks: []kv.Block{{Hash: 1, Content: 2}}}}
	for i := range 20 {
		large.Put(0, Sent, fmt.Sprint(i), []byte("x"), 0)
		large.Set(0, Orders, fmt.Sprint(i), 0, []byte("x"))
		if _, err := large.Publish(0, id(i), true, 0, batch); err != nil {
			t.Fatal(err)
		}
		small.Alive(0, fmt.Sprint("r", i))
		_ = small.Receive(0, fmt.Sprint("s", i), nil) // one that membership has not told of
		small.Put(0, Responses, fmt.Sprint(i), []byte("x"), 0)
	}
	small.Dead(0, "r0")
	small.Tick(1e12) // it is forgotten
	refused := small.Refused()
	join(t, small, large, 400)
	if h := small.Held(); h.Replicas > l.Replicas || h.TableRows[Orders] > l.TableRows || len(small.streams) > l.Streams {
		t.Errorf("%+v and %d streams are held", h, len(small.streams))
	}
	for k, n := range small.Values() {
		if n > 2*l.PageValues {
			t.Errorf("%d values of kind %v", n, Kind(k))
		}
	}
	if small.Refused() <= refused+3 {
		t.Errorf("%d things refused, though most of three kinds had no room", small.Refused()-refused)
	}

	// What a peer wants and was not sent.
	p := small.peers["large"]
	for i := range 20 {
		w := begin(frameWant, idFields+1)
		putID(w, id(i))
		w.Uint(0)
		if err := small.Receive(1e12, "large", w.Bytes()); err != nil {
			t.Fatal(err)
		}
		small.answerLost(p, id(19), crdt.Range{From: 0, To: 0})
	}
	if h := small.Held(); h.Wants > l.Wants {
		t.Errorf("%d wants are held", h.Wants)
	}
}

// join has two replicas meet and exchange frames for so many ticks.
func join(t *testing.T, a, b *Core, ticks int) {
	t.Helper()
	now := clock.Instant(1e12)
	a.Up(now, b.Self().Name)
	b.Up(now, a.Self().Name)
	for range ticks {
		now = now.Add(5 * time.Millisecond)
		for _, pair := range [][2]*Core{{a, b}, {b, a}} {
			pair[0].Tick(now)
			for _, m := range pair[0].Out() {
				if m.To != "" && m.To != pair[1].Self().Name {
					continue
				}
				if err := pair[1].Receive(now, pair[0].Self().Name, m.Frame); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestSnapshotsAreBounded: a snapshot that is larger than may be, or turns out to
// be larger than it said, is not taken; what came of it is let go.
func TestSnapshotsAreBounded(t *testing.T) {
	id := crdt.StreamID{Target: kv.Target{Worker: 1, Rank: kv.NoRank}, Boot: 1}
	for name, parts := range map[string][]struct {
		left, bytes int
	}{
		"it says so":          {{2000, 10}},
		"it says nothing":     {{0, 600}, {0, 600}},
		"it says what is not": {{900, 500}, {400, 600}},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{Self: Replica{Name: "a"}, Limits: Limits{SnapshotBytes: 1000}}, new(Shown))
			c.Up(1, "b")
			if _, err := c.Open(1, id, true); err != nil {
				t.Fatal(err)
			}
			c.wantSnapshot(1, c.peers["b"], c.streams[id])
			for i, part := range parts {
				w := begin(frameSnapshot, idFields+4)
				putID(w, id)
				w.Uint(uint64(i))
				w.Uint(9)
				w.Uint(uint64(part.left))
				w.Data(make([]byte, part.bytes))
				if err := c.Receive(1, "b", w.Bytes()); err != nil {
					t.Fatal(err)
				}
				if h := c.Held(); h.SnapshotBytes > 1000 {
					t.Errorf("%d bytes are held", h.SnapshotBytes)
				}
			}
			if h := c.Held(); h.SnapshotBytes != 0 || c.Refused() != 1 {
				t.Errorf("%d bytes are still held, %d refused", h.SnapshotBytes, c.Refused())
			}
		})
	}
}

func TestEachBadLimitIsNamed(t *testing.T) {
	err := Limits{Streams: -1, Wants: -1}.WithDefaults().Validate()
	if want := "limits.streams is -1: want 1 or more\nlimits.wants is -1: want 1 or more"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
