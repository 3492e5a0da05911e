// Package wiretest holds what the tests of all event decoders share: the golden
// payloads, of which [Goldens] is the list, and an encoder of payloads.
package wiretest

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/kv"
)

//go:embed testdata/kv_event_golden.json
var goldenFile []byte

// Sample is one golden: a payload, or a message's frames, and what it means.
// The file's "about" states the rules.
type Sample struct {
	ID, Name, Engine string
	Hex              string
	Frames           []string
	Seq              string
	End              bool
	Error            string     // "", "event" or "batch"
	Ops              []sampleOp // nil where nothing is expected
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

// Goldens returns the samples of an engine: "vllm", "sglang", or the frames
// "live-frame" and "replay-frame".
func Goldens(t testing.TB, engine string) []Sample {
	t.Helper()
	var file struct{ Samples []Sample }
	if err := json.Unmarshal(goldenFile, &file); err != nil {
		t.Fatal(err)
	}
	file.Samples = slices.DeleteFunc(file.Samples, func(s Sample) bool { return s.Engine != engine })
	if len(file.Samples) < 4 {
		t.Fatalf("only %d samples of %s", len(file.Samples), engine)
	}
	return file.Samples
}

// Payload returns the sample's payload.
func (s Sample) Payload(t testing.TB) []byte { return Unhex(t, s.Hex) }

// SeqNo returns the sequence number that the frames carry.
func (s Sample) SeqNo(t testing.TB) uint64 { return u64(t, s.Seq) }

// Unhex decodes hex digits.
func Unhex(t testing.TB, s string) []byte {
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

// Check decodes payload, by a decoder for the model "m", and compares with what
// the sample says. Blocks of 2, 4 and 16 tokens are all that the samples have.
func (s Sample) Check(t *testing.T, payload []byte, decode func(payload []byte, model string) (kvwire.Batch, error)) {
	t.Helper()
	got, err := decode(payload, "m")
	if (err != nil) != (s.Error == "batch") {
		t.Fatalf("%s: error %v, want kind %q", s.Name, err, s.Error)
	}
	if (got.BadEvents > 0) != (s.Error == "event") {
		t.Errorf("%s: %d bad events, want kind %q", s.Name, got.BadEvents, s.Error)
	}
	want := []kv.Op{}
	for _, o := range s.Ops {
		want = append(want, o.op(t))
	}
	for i := range got.Ops { // the goldens don't say it
		if op := &got.Ops[i]; op.Kind == kv.Insert && !slices.Contains([]uint32{2, 4, 16}, op.BlockTokens) {
			t.Errorf("%s: op %d has blocks of %d tokens", s.Name, i, op.BlockTokens)
		} else {
			op.BlockTokens = 0
		}
	}
	if diff := cmp.Diff(want, append([]kv.Op{}, got.Ops...)); diff != "" {
		t.Errorf("%s: ops differ (-want +got):\n%s", s.Name, diff)
	}
}
