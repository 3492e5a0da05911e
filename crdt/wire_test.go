package crdt

import (
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// anyOp draws an operation as an adapter may make it: runs are native, or
// follow each other, often.
func anyOp(t *rapid.T, before []kv.Op) kv.Op {
	hash := rapid.Custom(func(t *rapid.T) kv.EngineHash { return kv.EngineHash(rapid.Uint64().Draw(t, "hash")) })
	op := kv.Op{
		Kind:  rapid.SampledFrom([]kv.OpKind{kv.Insert, kv.Insert, kv.Also, kv.Remove, kv.Clear}).Draw(t, "kind"),
		Group: rapid.SampledFrom([]uint16{0, 0, 0, 1, math.MaxUint16}).Draw(t, "group"),
		Tier:  kv.Tier(rapid.IntRange(0, kv.NumTiers-1).Draw(t, "tier")),
	}
	switch op.Kind {
	case kv.Insert:
		op.BlockTokens = rapid.SampledFrom([]uint32{0, 16, 64, math.MaxUint32}).Draw(t, "block tokens")
		op.HasParent = rapid.Bool().Draw(t, "has parent")
		if !op.HasParent {
			op.Root = kv.Key(rapid.Uint64().Draw(t, "root"))
		} else if n := len(before); n > 0 && len(before[n-1].Blocks) > 0 && rapid.Bool().Draw(t, "goes on") {
			op.Parent = before[n-1].Blocks[len(before[n-1].Blocks)-1].Hash
		} else {
			op.Parent = hash.Draw(t, "parent")
		}
		own, key := rapid.Bool().Draw(t, "native"), parentKey(&op)
		for range rapid.IntRange(0, 5).Draw(t, "blocks") {
			b := kv.Block{Content: kv.Content(rapid.Uint64().Draw(t, "content"))}
			if key = kv.Next(key, b.Content); own {
				b.Hash = kv.EngineHash(key)
			} else {
				b.Hash = hash.Draw(t, "hash")
			}
			op.Blocks = append(op.Blocks, b)
		}
	case kv.Clear:
		op.Tier = 0
		op.Tiers = kv.TierMask(rapid.Byte().Draw(t, "tiers"))
	default:
		op.Hashes = rapid.SliceOfN(hash, 0, 5).Draw(t, "hashes")
	}
	return op
}

func anyBatch(t *rapid.T) []kv.Op {
	var ops []kv.Op
	for range rapid.IntRange(0, 6).Draw(t, "ops") {
		ops = append(ops, anyOp(t, ops))
	}
	return ops
}

// TestWireReturnsWhatWasWritten: a piece of a log reads as it was written, and
// any beginning of it is an error or fewer entries.
func TestWireReturnsWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []Entry
		var wire []byte
		next := rapid.Uint64Max(1<<40).Draw(t, "from")
		from := next
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			e := Entry{Range: Range{next, next}}
			if e.Skipped = rapid.Bool().Draw(t, "skipped"); e.Skipped {
				e.To += rapid.Uint64Max(1<<20).Draw(t, "more")
			} else {
				e.Ops = anyBatch(t)
			}
			if before := len(wire); !e.Skipped {
				wire = AppendEntry(wire, e)
				if Oversized(e.Ops) || len(wire)-before > 10+len(e.Ops)*24+8*len(wire) {
					t.Fatalf("%d bytes for %d operations", len(wire)-before, len(e.Ops))
				}
			} else {
				wire = AppendEntry(wire, e)
			}
			want = append(want, e)
			next = e.To + 1
		}
		read := func(wire []byte) (got []Entry, err error) {
			for n := from; len(wire) > 0 && err == nil; {
				var e Entry
				if e, wire, err = ReadEntry(wire, n); err == nil {
					got = append(got, e)
					n = e.To + 1
				}
			}
			return got, err
		}
		got, err := read(wire)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("read back: %v (-want +got)\n%s", err, diff)
		}
		if len(wire) > 0 {
			cut := rapid.IntRange(0, len(wire)-1).Draw(t, "cut")
			if got, err := read(wire[:cut]); err == nil && len(got) >= len(want) || err != nil && !errors.Is(err, ErrWire) {
				t.Fatalf("the first %d of %d bytes gave %d entries and %v", cut, len(wire), len(got), err)
			}
		}
	})
}

// TestWireGolden pins the format: replicas of other builds read it.
func TestWireGolden(t *testing.T) {
	root := kv.Root("m", "", "")
	first := kv.Next(root, 1)
	ops := []kv.Op{
		{Kind: kv.Insert, Root: root, BlockTokens: 16, Blocks: []kv.Block{{Hash: kv.EngineHash(first), Content: 1}}},
		{Kind: kv.Insert, HasParent: true, Parent: kv.EngineHash(first), BlockTokens: 16, Blocks: []kv.Block{{Hash: 7, Content: 2}}},
		{Kind: kv.Also, Tier: kv.CPU, Group: 3, Hashes: []kv.EngineHash{7}},
		{Kind: kv.Remove, Hashes: []kv.EngineHash{7, 8}},
		{Kind: kv.Clear, Tiers: kv.HBM.Mask() | kv.CPU.Mask()},
	}
	got := AppendEntry(AppendBatch(nil, ops), Entry{Range: Range{5, 9}, Skipped: true})
	want := "0a" + // five ops
		"08" + "b72b82f299f5f85b" + "10" + "03" + "0100000000000000" + // a native run from a root
		"10" + "10" + "02" + "0700000000000000" + "0200000000000000" + // one that goes on, not native
		"2503" + "01" + "0700000000000000" + // also on CPU, group 3
		"02" + "02" + "0700000000000000" + "0800000000000000" +
		"03" + "03" +
		"09" // a skip of five
	if hex.EncodeToString(got) != want {
		t.Errorf("got  %x\nwant %s", got, want)
	}
}

// TestWireRefuses names what a piece of a log may not be.
func TestWireRefuses(t *testing.T) {
	for name, wire := range map[string]string{
		"nothing":                  "",
		"an op without its head":   "02",
		"tier 5":                   "02a0",
		"a parent of a removal":    "020a010700000000000000",
		"a run after no block":     "021010" + "00",
		"group 0 said aloud":       "020400" + "00",
		"more hashes than bytes":   "0202ff01",
		"more blocks than bytes":   "0208" + "0000000000000000" + "10ffff01",
		"too many operations":      "feffffff0f",
		"a skip to the end of all": "ffffffffffffffffff01",
		"a varint of 11 bytes":     "ffffffffffffffffffffff01",
	} {
		b, err := hex.DecodeString(wire)
		if err != nil {
			t.Fatal(name, err)
		}
		if e, _, err := ReadEntry(b, 1<<63); !errors.Is(err, ErrWire) {
			t.Errorf("%s: read %+v, %v", name, e, err)
		}
	}
}

func TestOversized(t *testing.T) {
	if Oversized(make([]kv.Op, MaxBatchOps)) {
		t.Error("the longest batch is too long")
	}
	if !Oversized(make([]kv.Op, MaxBatchOps+1)) || !Oversized([]kv.Op{{Blocks: make([]kv.Block, MaxBatchBytes/16)}}) {
		t.Error("a batch that would be refused may be sent")
	}
	if _, _, err := ReadEntry(AppendBatch(nil, make([]kv.Op, MaxBatchOps+1)), 0); !errors.Is(err, ErrWire) {
		t.Error("a batch of too many operations was read:", err)
	}
}

// FuzzReadEntry: bytes of a peer never do more than fail, and what they say is
// said again in no more bytes.
func FuzzReadEntry(f *testing.F) {
	root := kv.Root("m", "", "")
	f.Add(AppendBatch(nil, []kv.Op{{Kind: kv.Insert, Root: root, Blocks: []kv.Block{{Hash: kv.EngineHash(kv.Next(root, 9)), Content: 9}}}}))
	f.Add(AppendBatch(nil, []kv.Op{{Kind: kv.Also, Tier: 1, Hashes: []kv.EngineHash{1, 2}}, {Kind: kv.Clear, Tiers: 3}}))
	f.Add(AppendEntry(nil, Entry{Range: Range{3, 8}, Skipped: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, rest, err := ReadEntry(b, 3)
		if err != nil {
			return
		}
		again := AppendEntry(nil, e)
		if len(again) > len(b)-len(rest) {
			t.Fatalf("%x became %x", b, again)
		}
		back, _, err := ReadEntry(again, 3)
		if diff := cmp.Diff(e, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}
