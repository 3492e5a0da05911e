package core

import (
	"errors"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/crdt"
)

// frames returns one frame of each type, as replicas send them.
func frames(t testing.TB) map[frameType][]byte {
	all := map[frameType][]byte{}
	g := newGround(&testing.T{}, 1, 3, 2, Config{Log: crdt.LogConfig{MaxRingBytes: 1500}})
	g.tap = func(frame []byte) { all[frameType(frame[1])] = frame }
	g.nodes[0].core.Put(g.now, Loads, "w", []byte("x"), 0)
	g.run(3 * time.Second)
	g.say(20)
	g.run(20 * time.Millisecond)
	g.cut(0, 1)
	g.cut(0, 2)
	g.say(2)
	g.run(20 * time.Millisecond)
	g.connect(0, 1)
	g.connect(0, 2)
	g.run(100 * time.Millisecond)
	g.cut(0, 1)
	g.cut(0, 2)
	g.say(100)
	g.nodes[1].core.Set(g.now, Orders, "w", 1, []byte("drain"))
	for i := range 5 {
		g.nodes[1].core.Put(g.now, Sent, string(rune('a'+i)), []byte("x"), 0)
	}
	g.run(3 * time.Second)
	for _, e := range g.engines {
		e.kept = 1
	}
	g.say(1)
	g.connect(0, 1)
	g.connect(0, 2)
	if err := g.nodes[0].core.Lost(g.now, g.engines[0].id, true, crdt.Range{From: 5000, To: 5001}); err != nil {
		t.Fatal(err)
	}
	g.run(time.Second)
	g.nodes[1].core.wantPage(g.now, g.nodes[1].core.peers["r2.0"], pageID{Loads, Replica{Name: "r0.0"}}, &page{copy: crdt.NewPage(1)})
	g.run(20 * time.Millisecond)
	return all
}

// TestFrames: each type is in use, and a frame cut short, with something behind
// it or of another length is an error.
func TestFrames(t *testing.T) {
	all := frames(t)
	for ft := frameNumbers; ft <= frameDenied; ft++ {
		frame := all[ft]
		if frame == nil {
			t.Errorf("no frame of type %d was sent", ft)
			continue
		}
		for _, bad := range [][]byte{frame[:len(frame)-1], append(append([]byte{}, frame...), 0)} {
			c := newGround(t, 1, 2, 0, Config{}).nodes[0].core
			if err := c.Receive(1, "r1.0", bad); !errors.Is(err, ErrFrame) {
				t.Errorf("type %d, %d bytes of %d: %v", ft, len(bad), len(frame), err)
			}
		}
	}
	c := newGround(t, 1, 2, 0, Config{}).nodes[0].core
	for name, frame := range map[string]string{"empty": "", "a type of a later version": "\x91\x63", "no array": "\x01", "an oversized one": strings.Repeat("\x00", MaxFrameBytes+1)} {
		if err := c.Receive(1, "r1.0", []byte(frame)); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Receive(1, "a stranger", frames(t)[frameVector]); err != nil {
		t.Errorf("from a replica that membership has not told of yet: %v", err)
	}
}

// FuzzReceive: a peer's bytes never do more than fail.
func FuzzReceive(f *testing.F) {
	for _, frame := range frames(f) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		g := newGround(t, 1, 2, 1, Config{Limits: Limits{Streams: 10, PageValues: 10, TableRows: 10}})
		c := g.nodes[0].core
		c.Out()
		if err := c.Receive(g.now, "r1.0", frame); err != nil && !errors.Is(err, ErrFrame) {
			t.Fatal(err)
		}
		c.Tick(g.now.Add(time.Second))
		if len(c.streams) > 10 || len(c.pages) > 2*NumKinds {
			t.Fatalf("%d streams, %d pages", len(c.streams), len(c.pages))
		}
	})
}

// TestSameSeedSameFrames: one seed is one run, to the byte.
func TestSameSeedSameFrames(t *testing.T) {
	run := func() uint64 {
		h := fnv.New64a()
		g := newGround(t, 9, 3, 3, Config{Log: crdt.LogConfig{MaxRingBytes: 2000}})
		g.tap = func(frame []byte) { h.Write(frame) }
		for i := range 100 {
			g.say(g.rand.IntN(5))
			if i%30 == 10 {
				g.cut(0, 1)
			}
			if i%30 == 20 {
				g.connect(0, 1)
			}
			g.run(50 * time.Millisecond)
		}
		return h.Sum64()
	}
	if a, b := run(), run(); a != b {
		t.Errorf("two runs sent different frames: %x, %x", a, b)
	}
}

// TestALaterMinor: fields that a later minor version appends to frames, and kinds
// of pages, tables and topics that it adds, are read over; a type of frame that it
// adds is not. What else it says is understood.
func TestALaterMinor(t *testing.T) {
	for ft, frame := range frames(t) {
		if _, fixed := frameFields[ft]; !fixed {
			continue
		}
		longer := append([]byte{frame[0] + 2}, frame[1:]...) // none has 13 or more
		longer = append(longer, 0x92, 0x01, 0xa1, 'x', 0xc0)
		c := newGround(t, 1, 2, 0, Config{}).nodes[0].core
		if err := c.Receive(1, "r1.0", longer); err != nil {
			t.Errorf("type %d with two fields more: %v", ft, err)
		}
		if err := c.Receive(1, "r1.0", append([]byte{frame[0] - 1}, frame[1:]...)); !errors.Is(err, ErrFrame) {
			t.Errorf("type %d with a field less: %v", ft, err)
		}
	}

	c, later := newGround(t, 1, 2, 0, Config{}).nodes[0].core, NumKinds
	writer := Replica{Name: "r1.0"}
	d := crdt.NewPage(10)
	d.Put(1, "k", []byte("v"), 0)
	delta := d.Since(1, crdt.Position{}, 1000)
	page := func(k Kind) []byte { return encodePage(k, writer, &delta) }
	want := begin(frameWantPage, 5)
	want.Uint(uint64(later))
	want.String(writer.Name)
	for range 3 {
		want.Uint(0)
	}
	wantTable := begin(frameWantRows, 1)
	wantTable.Uint(NumTables)
	told := begin(frameTold, 2)
	told.Uint(NumTopics)
	told.Data([]byte("words"))
	vector := begin(frameVector, 4)
	vector.Bool(false)
	vector.Array(0)
	vector.Array(2 * vectorPageFields)
	for _, k := range []int{later, int(Fits)} {
		vector.Uint(uint64(k))
		vector.String(writer.Name)
		for range 3 {
			vector.Uint(0)
		}
	}
	vector.Array(NumTables + 1)
	for range NumTables + 1 {
		vector.Uint(0)
	}
	rows := encodeRows(NumTables, []crdt.Register{{Key: "k", N: 1, Value: []byte("v")}})
	for name, frame := range map[string][]byte{"a page": page(Kind(later)), "a want of a page": want.Bytes(), "a want of a table": wantTable.Bytes(),
		"words": told.Bytes(), "a vector": vector.Bytes(), "rows": rows} {
		if err := c.Receive(2, "r1.0", frame); err != nil {
			t.Errorf("%s of what is not known here: %v", name, err)
		}
	}
	if err := c.Receive(2, "r1.0", page(Fits)); err != nil {
		t.Fatal(err)
	}
	if n := c.Values(); n[Fits] != 1 || len(c.pages) != 1 || len(c.peers["r1.0"].tasks) != 0 || !c.met {
		t.Errorf("%v values, %d pages, %d wants, met %v", n, len(c.pages), len(c.peers["r1.0"].tasks), c.met)
	}
	if err := c.Receive(2, "r1.0", begin(frameTold+1, 0).Bytes()); !errors.Is(err, ErrFrame) {
		t.Errorf("a new type of frame: %v", err)
	}
}
