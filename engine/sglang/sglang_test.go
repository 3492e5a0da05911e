package sglang

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/kvwire/wiretest"
	"github.com/rhizome-router/rhizome/kv"
)

type m = wiretest.Map

func TestGoldens(t *testing.T) {
	for _, s := range wiretest.Goldens(t, "sglang") {
		if s.Ops == nil && s.Error == "" {
			continue // a release whose hashes say nothing
		}
		t.Run(s.ID, func(t *testing.T) { s.Check(t, s.Payload(t), Decode) })
	}
}

func TestChained(t *testing.T) {
	for version, want := range map[string]bool{
		"0.4.6.post5": false, "0.5.5": false, "0.5.5.post3": false, "0.5.6rc0": false, "0.5.6.dev3": false,
		"0.5.6": true, "0.5.6.post2": true, "v0.5.6": true, "0.5.6+cu128": true, "0.5.6.post2.dev8005+g1234": true, "0.5.18": true,
		"0.5.9rc1": true, "0.6.0": true, "1.0.0": true, "0.10.0": true,
		"": false, "main": false, "0.5": false, "0.5.": false, "0.5.x": false, "99999999999999999999.0.0": false, "-1.0.0": false,
	} {
		if got := Chained(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

func stored(more ...any) m {
	return append(m{"type", "BlockStored", "block_hashes", []any{-1, 2}, "parent_block_hash", nil,
		"token_ids", []any{1, 2, 3, 4}, "block_size", 2, "lora_id", nil, "medium", "GPU"}, more...)
}

func array(metadata any) []any {
	return []any{"BlockStored", []any{-1, 2}, nil, []any{1, 2, 3, 4}, 2, nil, "GPU", metadata}
}

// Where the salt and the adapter may stand.
func TestRoots(t *testing.T) {
	for name, c := range map[string]struct {
		event         any
		adapter, salt string
	}{
		"neither":               {stored(), "", ""},
		"salt":                  {stored("cache_salt", "s"), "", "s"},
		"salt nil":              {stored("cache_salt", nil), "", ""},
		"salt in metadata":      {stored("metadata", m{"other", []any{1}, 5, 6, "cache_salt", "s"}), "", "s"},
		"metadata nil":          {stored("metadata", nil), "", ""},
		"metadata without salt": {stored("metadata", m{"cache_salt", nil}), "", ""},
		"both":                  {stored("cache_salt", "s", "metadata", m{"cache_salt", "t"}), "", "s"},
		"adapter and salt":      {stored("cache_salt", "s", "lora_name", "a"), "a", "s"},
		"array":                 {array(m{"cache_salt", "s"}), "", "s"},
		"array, nil":            {array(nil), "", ""},
		"array, empty map":      {array(m{}), "", ""},
	} {
		b, err := Decode(wiretest.Batch(t, c.event), "org/m")
		if err != nil || b.BadEvents > 0 || len(b.Ops) != 1 || b.Ops[0].Root != kv.Root("org/m", c.adapter, c.salt) {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
	// One batch, several roots: each run has its own.
	b, err := Decode(wiretest.Batch(t, stored("cache_salt", "a"), stored("cache_salt", "b"), stored("lora_name", "b"), stored()), "m")
	if err != nil || len(b.Ops) != 4 {
		t.Fatalf("%+v, %v", b, err)
	}
	for i, want := range []kv.Key{kv.Root("m", "", "a"), kv.Root("m", "", "b"), kv.Root("m", "b", ""), kv.Root("m", "", "")} {
		if b.Ops[i].Root != want {
			t.Errorf("op %d has root %x, want %x", i, b.Ops[i].Root, want)
		}
	}
}

func TestBadEvents(t *testing.T) {
	pairs := func(tokens ...any) []any { return []any{"BlockStored", []any{1}, nil, tokens, 2, nil, "GPU"} }
	for name, event := range map[string]any{
		"salt a number":                 stored("cache_salt", 5),
		"metadata a string":             array("sql-lora"),
		"metadata a list":               array([]any{"cache_salt"}),
		"salt in metadata a number":     array(m{"cache_salt", 5}),
		"a pair of one":                 pairs([]any{1, 2}, []any{2}),
		"a pair of three":               pairs([]any{1, 2, 3}, []any{2, 3}),
		"a pair, then a token":          pairs([]any{1, 2}, 2),
		"a token, then a pair":          pairs(1, []any{1, 2}),
		"the second half of a pair bad": pairs([]any{1, -2}, []any{2, 3}),
		"the first half of a pair nil":  pairs([]any{nil, 2}, []any{2, 3}),
	} {
		b, err := Decode(wiretest.Batch(t, event, []any{"BlockRemoved", []any{7}}), "m")
		if err != nil || b.BadEvents != 1 || len(b.Ops) != 1 || b.Ops[0].Kind != kv.Remove {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}

// Pairs have the contents of their first tokens, and the array and the map
// form of an event mean the same.
func TestFormsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		n := size * rapid.IntRange(1, 4).Draw(t, "blocks")
		tokens := rapid.SliceOfN(rapid.Uint32(), n+1, n+1).Draw(t, "tokens")
		hashes := rapid.SliceOfNDistinct(rapid.Int64(), n/size, n/size, rapid.ID).Draw(t, "hashes")
		medium := rapid.SampledFrom([]any{nil, "GPU", "CPU_PINNED", "DISK", "EXTERNAL"}).Draw(t, "medium")
		salt := rapid.SampledFrom([]any{nil, "", "s"}).Draw(t, "salt")
		var pairs []any
		for i := range n {
			pairs = append(pairs, []any{tokens[i], tokens[i+1]})
		}
		decode := func(event any) kvwire.Batch {
			b, err := Decode(wiretest.Batch(t, event), "m")
			if err != nil || b.BadEvents > 0 {
				t.Fatalf("%+v, %v", b, err)
			}
			return b
		}
		want := decode([]any{"BlockStored", hashes, nil, tokens[:n], size, nil, medium, m{"cache_salt", salt}})
		for _, ids := range []any{tokens[:n], pairs} {
			got := decode(m{"cache_salt", salt, "medium", medium, "block_size", size, "token_ids", ids,
				"parent_block_hash", nil, "block_hashes", hashes, "type", "BlockStored"})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		}
		for i, b := range want.Ops[0].Blocks {
			if b.Hash != kv.EngineHash(hashes[i]) || b.Content != kv.ContentOf(tokens[i*size:(i+1)*size]) {
				t.Fatalf("block %d: %+v", i, b)
			}
		}
	})
}

// FuzzDecode: no panic, and memory in proportion to the payload.
func FuzzDecode(f *testing.F) {
	for _, s := range wiretest.Goldens(f, "sglang") {
		f.Add(s.Payload(f))
	}
	f.Add(wiretest.Batch(f, array(m{"cache_salt", "s"}), stored("metadata", m{"cache_salt", "s"})))
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

// pageHashes returns the hashes that SGLang gives pages of tokens.
func pageHashes(tokens []uint32, page int) []any {
	var hashes []any
	var digest []byte
	for ; len(tokens) >= page; tokens = tokens[page:] {
		for _, t := range tokens[:page] {
			digest = binary.LittleEndian.AppendUint32(digest, t)
		}
		sum := sha256.Sum256(digest)
		digest = sum[:]
		hashes = append(hashes, int64(binary.BigEndian.Uint64(digest)))
	}
	return hashes
}

// BenchmarkDecode reads a prefill of 64 pages of 16 tokens: as releases up to
// 0.5.17 send it, an event a page; batched; and batched in pairs.
func BenchmarkDecode(b *testing.B) {
	const pages, page = 64, 16
	tokens := make([]uint32, pages*page)
	var pairs []any
	for i := range tokens {
		tokens[i] = uint32(i) * 7919 % 128_000
		pairs = append(pairs, []any{tokens[i], uint32(i+1) * 7919 % 128_000})
	}
	hashes := pageHashes(tokens, page)
	var single []any
	for i, h := range hashes {
		var parent any
		if i > 0 {
			parent = hashes[i-1]
		}
		single = append(single, []any{"BlockStored", []any{h}, parent, tokens[i*page : (i+1)*page], page, nil, "GPU"})
	}
	batched := func(ids any) []byte {
		return wiretest.Batch(b, m{"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", nil, "token_ids", ids,
			"block_size", page, "lora_id", nil, "medium", "GPU"})
	}
	for name, payload := range map[string][]byte{"single": wiretest.Batch(b, single...), "batched": batched(tokens), "pairs": batched(pairs)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if batch, err := Decode(payload, "m"); err != nil || batch.BadEvents > 0 {
					b.Fatal(batch, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pages), "ns/block")
		})
	}
}

// The golden payloads hold the hashes that a prompt's pages have.
func TestPageHashes(t *testing.T) {
	got := pageHashes([]uint32{1, 2, 3, 4, 100, 300, 70000, 8}, 4)
	if want := []any{int64(-3488128144981237669), int64(-2270972314410630212)}; !cmp.Equal(want, got) {
		t.Errorf("%v, want %v", got, want)
	}
}
