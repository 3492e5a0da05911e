package vllm

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/kv"
)

// sample is one golden: a payload, or a message's frames, and what it means.
// The file's "about" states the rules.
type sample struct {
	ID, Name, Engine string
	Hex              string
	Frames           []string
	Seq              string
	End              bool
	Error            string // "", "event" or "batch"
	Ops              []sampleOp
}

type sampleOp struct {
	Op     string
	Group  uint16
	Tier   string
	Parent *string
	Root   *struct{ Model, Adapter, Salt string }
	Blocks []struct{ Hash, Content string }
	Hashes []string
	Tiers  []string
}

func goldens(t testing.TB) []sample {
	t.Helper()
	raw, err := os.ReadFile("testdata/kv_event_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Samples []sample }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Samples) < 60 {
		t.Fatalf("only %d samples", len(file.Samples))
	}
	return file.Samples
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func u64(t testing.TB, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func tier(t testing.TB, s string) kv.Tier {
	t.Helper()
	v, err := kv.ParseTier(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (o sampleOp) op(t testing.TB) kv.Op {
	op := kv.Op{Group: o.Group}
	if o.Tier != "" {
		op.Tier = tier(t, o.Tier)
	}
	switch o.Op {
	case "insert":
		op.Kind = kv.Insert
	case "also":
		op.Kind = kv.Also
	case "remove":
		op.Kind = kv.Remove
	case "clear":
		op.Kind = kv.Clear
	default:
		t.Fatalf("op %q", o.Op)
	}
	if o.Parent != nil {
		op.HasParent, op.Parent = true, kv.EngineHash(u64(t, *o.Parent))
	}
	if o.Root != nil {
		op.Root = kv.Root(o.Root.Model, o.Root.Adapter, o.Root.Salt)
	}
	for _, b := range o.Blocks {
		op.Blocks = append(op.Blocks, kv.Block{Hash: kv.EngineHash(u64(t, b.Hash)), Content: kv.Content(u64(t, b.Content))})
	}
	for _, h := range o.Hashes {
		op.Hashes = append(op.Hashes, kv.EngineHash(u64(t, h)))
	}
	for _, name := range o.Tiers {
		op.Tiers |= tier(t, name).Mask()
	}
	return op
}

func TestGoldenPayloads(t *testing.T) {
	for _, s := range goldens(t) {
		if s.Engine != "vllm" {
			continue
		}
		t.Run(s.ID, func(t *testing.T) { checkPayload(t, s, unhex(t, s.Hex)) })
	}
}

func checkPayload(t *testing.T, s sample, payload []byte) {
	t.Helper()
	got, err := Decode(payload, "m")
	if (err != nil) != (s.Error == "batch") {
		t.Fatalf("%s: error %v, want kind %q", s.Name, err, s.Error)
	}
	if (got.BadEvents > 0) != (s.Error == "event") {
		t.Errorf("%s: %d bad events, want kind %q", s.Name, got.BadEvents, s.Error)
	}
	var want []kv.Op
	for _, o := range s.Ops {
		want = append(want, o.op(t))
	}
	for i := range got.Ops { // the goldens don't say it
		if op := &got.Ops[i]; op.Kind == kv.Insert && op.BlockTokens != 4 && op.BlockTokens != 16 {
			t.Errorf("%s: op %d has blocks of %d tokens", s.Name, i, op.BlockTokens)
		} else {
			op.BlockTokens = 0
		}
	}
	if diff := cmp.Diff(want, got.Ops, equateEmpty); diff != "" {
		t.Errorf("%s: ops differ (-want +got):\n%s", s.Name, diff)
	}
}

var equateEmpty = cmp.FilterValues(func(a, b []kv.Op) bool { return len(a) == 0 && len(b) == 0 },
	cmp.Comparer(func(a, b []kv.Op) bool { return true }))

func TestGoldenFrames(t *testing.T) {
	for _, s := range goldens(t) {
		var read func([][]byte) (kvwire.Message, error)
		switch {
		case s.ID == "F9": // a request of ours
			want := [][]byte{nil, unhex(t, s.Frames[1])}
			if got := kvwire.ReplayRequest(5000); !cmp.Equal(want, got) {
				t.Errorf("%s: %x, want %x", s.Name, got, want)
			}
			continue
		case s.Engine == "live-frame":
			read = kvwire.Live
		case s.Engine == "replay-frame":
			read = kvwire.Replay
		default:
			continue
		}
		t.Run(s.ID, func(t *testing.T) { checkFrames(t, s, read) })
	}
}

func checkFrames(t *testing.T, s sample, read func([][]byte) (kvwire.Message, error)) {
	t.Helper()
	var frames [][]byte
	for _, f := range s.Frames {
		frames = append(frames, unhex(t, f))
	}
	m, err := read(frames)
	if (err != nil) != (s.Error == "batch") {
		t.Fatalf("%s: error %v, want kind %q", s.Name, err, s.Error)
	}
	if m.End != s.End {
		t.Errorf("%s: end %v, want %v", s.Name, m.End, s.End)
	}
	if err != nil || s.End {
		return
	}
	if m.Seq != u64(t, s.Seq) {
		t.Errorf("%s: seq %d, want %s", s.Name, m.Seq, s.Seq)
	}
	checkPayload(t, s, m.Payload)
}
