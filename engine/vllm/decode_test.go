package vllm

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/kvwire/wiretest"
	"github.com/rhizome-router/rhizome/kv"
)

type m = wiretest.Map

// stored returns a BlockStored in map form; changes are more or other pairs.
func stored(changes ...any) m {
	e := m{"type", "BlockStored", "block_hashes", []any{1, 2}, "parent_block_hash", nil,
		"token_ids", []any{1, 2, 3, 4, 5, 6}, "block_size", 3, "lora_id", nil, "medium", "GPU", "lora_name", nil}
	for i := 0; i < len(changes); i += 2 {
		e = replace(e, changes[i], changes[i+1])
	}
	return e
}

func replace(e m, key, value any) m {
	for i := 0; i < len(e); i += 2 {
		if e[i] == key {
			e[i+1] = value
			return e
		}
	}
	return append(e, key, value)
}

func TestGoldens(t *testing.T) {
	for _, s := range wiretest.Goldens(t, "vllm") {
		t.Run(s.ID, func(t *testing.T) { s.Check(t, s.Payload(t), Decode) })
	}
}

func TestBatchFields(t *testing.T) {
	clear := []any{"AllBlocksCleared"}
	for name, c := range map[string]struct {
		batch any
		ts    float64
		rank  int
	}{
		"array":             {[]any{1.5, []any{clear}, 3}, 1.5, 3},
		"rank nil":          {[]any{1.5, []any{clear}, nil}, 1.5, -1},
		"rank negative":     {[]any{1.5, []any{clear}, -1}, 1.5, -1},
		"rank huge":         {[]any{1.5, []any{clear}, 1 << 40}, 1.5, -1},
		"rank text":         {[]any{1.5, []any{clear}, "0"}, 1.5, -1},
		"two elements":      {[]any{7, []any{clear}}, 7, -1},
		"no time":           {[]any{nil, []any{clear}, 0}, 0, 0},
		"map":               {m{"type", "KVEventBatch", "ts", 2.5, "events", []any{clear}, "data_parallel_rank", 1}, 2.5, 1},
		"map, other order":  {m{"events", []any{clear}, "novel", m{1, 2}, 5, 6, "ts", float32(2.5)}, 2.5, -1},
		"map, extra values": {m{"ts", 1, "events", []any{clear}, "data_parallel_rank", nil}, 1, -1},
	} {
		b, err := Decode(wiretest.Encode(t, c.batch), "m")
		if err != nil || b.TimestampSeconds != c.ts || b.Rank != c.rank || len(b.Ops) != 1 {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}

func TestBrokenBatches(t *testing.T) {
	whole := wiretest.Batch(t, stored())
	for name, payload := range map[string][]byte{
		"trailing bytes":  append(bytes.Clone(whole), 0),
		"not a container": {5},
		"time is text":    wiretest.Encode(t, []any{"now", []any{}, 0}),
		"map, no events":  wiretest.Encode(t, m{"ts", 1.5}),
		"map, two events": wiretest.Encode(t, m{"events", []any{}, "events", []any{}}),
		"reserved code":   {0x92, 0, 0x91, 0xc1},
	} {
		if b, err := Decode(payload, "m"); err == nil || len(b.Ops) > 0 {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
	for i := range whole {
		if _, err := Decode(whole[:i], "m"); err == nil {
			t.Errorf("cut at byte %d of %d: no error", i, len(whole))
		}
	}
	_, err := Decode(whole[:20], "m")
	if err == nil || !strings.Contains(err.Error(), "batch of vLLM events of 20 bytes") {
		t.Errorf("the error doesn't say what was read: %v", err)
	}
}

// A bad event costs itself alone, whatever is wrong with it.
func TestBadEvents(t *testing.T) {
	for name, e := range map[string]any{
		"nil":                        nil,
		"a number":                   5,
		"empty array":                []any{},
		"empty map":                  m{},
		"tag is a number":            []any{7, []any{1}},
		"type is nil":                stored("type", nil),
		"no hashes":                  m{"type", "BlockRemoved"},
		"hashes nil":                 stored("block_hashes", nil),
		"hashes no array":            stored("block_hashes", 7),
		"hash nil":                   stored("block_hashes", []any{1, nil}),
		"hash float":                 stored("block_hashes", []any{1, 2.5}),
		"hash of 7 bytes":            stored("block_hashes", []any{1, make([]byte, 7)}),
		"hash of no bytes":           stored("block_hashes", []any{1, []byte{}}),
		"parent a string":            stored("parent_block_hash", "x"),
		"parent among the hashes":    stored("parent_block_hash", 2),
		"tokens no array":            stored("token_ids", "x"),
		"token float":                stored("token_ids", []any{1, 2, 3, 4, 5, 6.0}),
		"token pairs":                stored("token_ids", []any{[]any{1, 2}, 3, 4, 5, 6, 7}),
		"a token too few":            stored("token_ids", []any{1, 2, 3, 4, 5}),
		"a token too many":           stored("token_ids", []any{1, 2, 3, 4, 5, 6, 7}),
		"tokens without blocks":      stored("block_hashes", []any{}),
		"block size negative":        stored("block_size", -1),
		"block size text":            stored("block_size", "3"),
		"block size overflows":       stored("block_size", uint64(math.MaxUint32)),
		"block size over 32 bits":    stored("block_size", uint64(1)<<40),
		"group negative":             stored("group_idx", -1),
		"group over 16 bits":         stored("group_idx", 1<<16),
		"medium a number":            stored("medium", 1),
		"removed, medium a number":   m{"type", "BlockRemoved", "block_hashes", []any{1}, "medium", 1},
		"lora name a number":         stored("lora_name", 1),
		"lora id text":               stored("lora_id", "1"),
		"extra keys no array":        stored("extra_keys", "x"),
		"extra keys' entry no array": stored("extra_keys", []any{nil, "x"}),
		"extra of unknown kind":      stored("extra_keys", []any{[]any{1.5}}),
		"media of three":             stored("extra_keys", []any{[]any{[]any{"a", 1, 2}}}),
		"media of none":              stored("extra_keys", []any{[]any{[]any{}}}),
		"media id a number":          stored("extra_keys", []any{[]any{[]any{1, 1}}}),
		"media offset text":          stored("extra_keys", []any{[]any{[]any{"a", "1"}}}),
		"cleared, medium a number":   []any{"AllBlocksCleared", 5},
	} {
		removed := func(h int) any { return []any{"BlockRemoved", []any{h}, "GPU"} }
		b, err := Decode(wiretest.Batch(t, removed(1), e, removed(2)), "m")
		if err != nil || b.BadEvents != 1 || b.UnknownEvents != 0 {
			t.Errorf("%s: %d bad, %d unknown, %v", name, b.BadEvents, b.UnknownEvents, err)
			continue
		}
		if len(b.Ops) != 2 || b.Ops[0].Hashes[0] != 1 || b.Ops[1].Hashes[0] != 2 {
			t.Errorf("%s: the others' ops are %+v", name, b.Ops)
		}
	}
}

func TestOddButGoodEvents(t *testing.T) {
	root := func(adapter string) kv.Key { return kv.Root("m", adapter, "") }
	content := func(words ...string) kv.Content { return kv.ContentOf([]uint32{1, 2, 3}, words...) }
	for name, c := range map[string]struct {
		event any
		ok    func(op kv.Op) bool
	}{
		"negative lora id":     {stored("lora_id", -4), func(op kv.Op) bool { return op.Root == root("id:-4") }},
		"lora id 0":            {stored("lora_id", 0), func(op kv.Op) bool { return op.Root == root("id:0") }},
		"empty lora name":      {stored("lora_name", "", "lora_id", 9), func(op kv.Op) bool { return op.Root == root("id:9") }},
		"kind nil":             {stored("kv_cache_spec_kind", nil), func(op kv.Op) bool { return op.Kind == kv.Insert }},
		"kind a number":        {stored("kv_cache_spec_kind", 3), func(op kv.Op) bool { return op.Kind == kv.Insert }},
		"kind unheard of":      {stored("kv_cache_spec_kind", "holographic"), func(op kv.Op) bool { return op.Kind == kv.Insert }},
		"kind unheard of in 1": {stored("kv_cache_spec_kind", "holographic", "group_idx", 1), func(op kv.Op) bool { return op.Kind == kv.Also && op.Group == 1 }},
		"bad tokens in a windowed group": {stored("token_ids", []any{"x"}, "kv_cache_spec_kind", "mamba"),
			func(op kv.Op) bool { return op.Kind == kv.Also && op.BlockTokens == 0 }},
		"no block size":         {stored("block_size", nil), func(op kv.Op) bool { return op.Kind == kv.Also }},
		"locality LOCAL":        {stored("locality", "LOCAL"), func(op kv.Op) bool { return op.Tier == kv.HBM }},
		"locality a number":     {stored("locality", 3), func(op kv.Op) bool { return op.Tier == kv.HBM }},
		"medium long and alien": {stored("medium", strings.Repeat("GPU", 50)), func(op kv.Op) bool { return op.Tier == kv.Other }},
		"lower-case cuda:1":     {stored("medium", "cuda:1"), func(op kv.Op) bool { return op.Tier == kv.HBM }},
		"extra keys empty":      {stored("extra_keys", []any{}), func(op kv.Op) bool { return op.Blocks[0].Content == content() }},
		"media without offset":  {stored("extra_keys", []any{[]any{[]any{"a"}}}), func(op kv.Op) bool { return op.Blocks[0].Content == content("mm:a") }},
		"media before the block": {stored("extra_keys", []any{[]any{[]any{"a", -5}}}),
			func(op kv.Op) bool { return op.Blocks[0].Content == content("mm:a@-5") }},
		"adapter, media, salt, embeddings": {stored("lora_name", "l", "extra_keys", []any{[]any{"l", []any{"a", 300}, "s", []byte("b")}, nil}),
			func(op kv.Op) bool { return op.Blocks[0].Content == content("mm:a@300", "x:s", "x:b") }},
		"removed from a group": {m{"group_idx", 7, "block_hashes", []any{-1}, "type", "BlockRemoved"},
			func(op kv.Op) bool { return op.Group == 7 && op.Hashes[0] == math.MaxUint64 }},
		"a key twice: the last": {append(m{"block_size", 2}, stored()...), func(op kv.Op) bool { return op.BlockTokens == 3 }},
	} {
		b, err := Decode(wiretest.Batch(t, c.event), "m")
		if err != nil || b.BadEvents > 0 || len(b.Ops) != 1 || !c.ok(b.Ops[0]) {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}

// An op that says nothing is not worth an op.
func TestEmptyEvents(t *testing.T) {
	b, err := Decode(wiretest.Batch(t,
		stored("block_hashes", []any{}, "token_ids", []any{}),
		stored("block_hashes", []any{}, "kv_cache_spec_kind", "mamba"),
		[]any{"BlockRemoved", []any{}, "GPU"}), "m")
	if err != nil || b.BadEvents != 0 || len(b.Ops) != 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// What a batch says of the groups beside main attention.
func TestGroups(t *testing.T) {
	windowed := func(group int, kind string, more ...any) m {
		return stored(append([]any{"group_idx", group, "kv_cache_spec_kind", kind}, more...)...)
	}
	const window = "kv_cache_spec_sliding_window"
	array := []any{"BlockStored", []any{7}, nil, []any{1, 2, 3}, 4, nil, "GPU", nil, nil, 9, "sliding_window", 4096}
	b, err := Decode(wiretest.Batch(t,
		windowed(0, "full_attention"), windowed(1, "sliding_window", window, 128), windowed(1, "sliding_window", window, 64),
		windowed(2, "mamba"), array, windowed(4, "sliding_window_mla", window, 1),
		windowed(5, "sliding_window"), windowed(6, "sliding_window", window, 0), windowed(7, "sliding_window", window, "128"),
		windowed(8, "chunked_local_attention", window, 128), windowed(10, "holographic", window, 128),
		windowed(11, "mamba", "block_size", 0), windowed(12, "mamba", "token_ids", []any{})), "m")
	want := []kvwire.Group{{ID: 1, WindowTokens: 128, BlockTokens: 3}, {ID: 2, WindowTokens: 1, BlockTokens: 3},
		{ID: 9, WindowTokens: 4096, BlockTokens: 4}, {ID: 4, WindowTokens: 1, BlockTokens: 3}}
	if diff := cmp.Diff(want, b.Groups); err != nil || b.BadEvents > 0 || diff != "" {
		t.Errorf("%v, %d bad events, -want +got:\n%s", err, b.BadEvents, diff)
	}
	var many []any
	for i := range 100 {
		many = append(many, windowed(i+1, "mamba"))
	}
	if b, err := Decode(wiretest.Batch(t, many...), "m"); err != nil || len(b.Groups) != 32 || len(b.Ops) != 100 {
		t.Errorf("%d groups, %d ops, %v", len(b.Groups), len(b.Ops), err)
	}
}

type event struct {
	hashes    []uint64
	parent    any
	tokens    []uint32
	blockSize int
	lora      any
	medium    any
	name      any
}

func drawEvent(t *rapid.T) event {
	e := event{blockSize: rapid.IntRange(1, 5).Draw(t, "size")}
	e.hashes = rapid.SliceOfNDistinct(rapid.Uint64Range(10, math.MaxUint64), 1, 4, rapid.ID).Draw(t, "hashes")
	n := e.blockSize * len(e.hashes)
	e.tokens = rapid.SliceOfN(rapid.Uint32(), n, n).Draw(t, "tokens")
	e.parent = rapid.SampledFrom([]any{nil, 0, 5}).Draw(t, "parent")
	e.lora = rapid.SampledFrom([]any{nil, 3}).Draw(t, "lora")
	e.medium = rapid.SampledFrom([]any{nil, "GPU", "CPU", "DISK"}).Draw(t, "medium")
	e.name = rapid.SampledFrom([]any{nil, "sql"}).Draw(t, "name")
	return e
}

// The array and the map form of an event mean the same, and what was put in
// comes out.
func TestFormsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var arrays, maps []any
		var want []event
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			e := drawEvent(t)
			want = append(want, e)
			arrays = append(arrays, []any{"BlockStored", e.hashes, e.parent, e.tokens, e.blockSize, e.lora, e.medium, e.name})
			pairs := [][2]any{{"type", "BlockStored"}, {"block_hashes", e.hashes}, {"parent_block_hash", e.parent}, {"token_ids", e.tokens},
				{"block_size", e.blockSize}, {"lora_id", e.lora}, {"medium", e.medium}, {"lora_name", e.name}}
			var shuffled m
			for _, p := range rapid.Permutation(pairs).Draw(t, "order") {
				shuffled = append(shuffled, p[0], p[1])
			}
			maps = append(maps, shuffled)
		}
		a, err := Decode(wiretest.Batch(t, arrays...), "m")
		if err != nil {
			t.Fatal(err)
		}
		b, err := Decode(wiretest.Batch(t, maps...), "m")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("forms differ:\n%s", diff)
		}
		if len(a.Ops) != len(want) || a.BadEvents > 0 {
			t.Fatalf("%d ops and %d bad events of %d", len(a.Ops), a.BadEvents, len(want))
		}
		for i, op := range a.Ops {
			for j, block := range op.Blocks {
				e := want[i]
				tokens := e.tokens[j*e.blockSize : (j+1)*e.blockSize]
				if uint64(block.Hash) != e.hashes[j] || block.Content != kv.ContentOf(tokens) || op.HasParent != (e.parent != nil) {
					t.Fatalf("op %d, block %d: %+v of %+v", i, j, op, e)
				}
			}
		}
	})
}

// FuzzDecode: no panic, and memory in proportion to the payload.
func FuzzDecode(f *testing.F) {
	for _, s := range wiretest.Goldens(f, "vllm") {
		f.Add(s.Payload(f))
	}
	f.Add(wiretest.Batch(f, stored("extra_keys", []any{[]any{[]any{"a", -5}, "s"}}), stored()))
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := Decode(payload, "m")
		if err != nil && len(b.Ops) > 0 {
			t.Fatal("ops of a batch that can't be used")
		}
		held := cap(b.Ops) * int(unsafe.Sizeof(kv.Op{}))
		for _, op := range b.Ops {
			held += 8*len(op.Hashes) + 16*len(op.Blocks)
			if op.Kind == kv.Insert && (op.BlockTokens == 0 || len(op.Blocks) == 0) {
				t.Fatalf("an empty insert: %+v", op)
			}
		}
		if limit := 10_000 + 32*len(payload); held > limit {
			t.Fatalf("%d bytes held for a payload of %d", held, len(payload))
		}
	})
}

// BenchmarkDecode reads a prefill of 64 blocks of 16 tokens, as newer engines
// send it, and a step that evicts 32 blocks and stores one.
func BenchmarkDecode(b *testing.B) {
	var hashes, tokens []any
	for i := range uint64(64) {
		hashes = append(hashes, (i+1)*0x9e3779b97f4a7c15)
		for j := range uint64(16) {
			tokens = append(tokens, (i*16+j)*7919%128_000)
		}
	}
	prefill := wiretest.Batch(b, stored("block_hashes", hashes, "token_ids", tokens, "block_size", 16, "group_idx", 0, "kv_cache_spec_kind", "full_attention"))
	var step []any
	for i := range 32 {
		step = append(step, m{"type", "BlockRemoved", "block_hashes", hashes[i : i+1], "medium", "GPU", "group_idx", 0})
	}
	step = append(step, stored("block_hashes", hashes[40:41], "token_ids", tokens[:16], "block_size", 16, "parent_block_hash", 7))
	for name, c := range map[string]struct {
		payload []byte
		blocks  int
	}{"prefill": {prefill, 64}, "step": {wiretest.Batch(b, step...), 33}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(c.payload)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(c.payload, "m"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.blocks), "ns/block")
		})
	}
}
