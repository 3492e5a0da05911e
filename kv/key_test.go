package kv

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
)

func u64(t *testing.T, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestKeyVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/key_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		KeyVectors []struct {
			Name, Model, Adapter, Salt, Root string
			Blocks                           [][]uint32
			Extras                           [][]string
			Contents, Keys                   []string
		} `json:"key_vectors"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.KeyVectors) < 4 {
		t.Fatalf("only %d vectors", len(file.KeyVectors))
	}
	for _, v := range file.KeyVectors {
		key := Root(v.Model, v.Adapter, v.Salt)
		if want := Key(u64(t, v.Root)); key != want {
			t.Errorf("%s: root %d, want %d", v.Name, key, want)
		}
		var flat []uint32
		plain := true
		for i, tokens := range v.Blocks {
			c := ContentOf(tokens, v.Extras[i]...)
			if want := Content(u64(t, v.Contents[i])); c != want {
				t.Errorf("%s: content %d is %d, want %d", v.Name, i, c, want)
			}
			key = Next(key, c)
			if want := Key(u64(t, v.Keys[i])); key != want {
				t.Errorf("%s: key %d is %d, want %d", v.Name, i, key, want)
			}
			flat = append(flat, tokens...)
			plain = plain && len(v.Extras[i]) == 0
		}
		if !plain {
			continue
		}
		flat = append(flat, 9) // a last short block has no key
		got := AppendKeys(nil, Root(v.Model, v.Adapter, v.Salt), flat, len(v.Blocks[0]))
		if len(got) != len(v.Keys) || got[len(got)-1] != key {
			t.Errorf("%s: AppendKeys gave %v", v.Name, got)
		}
	}
}

func TestRootFieldsAreSeparated(t *testing.T) {
	if Root("ab", "", "") == Root("a", "b", "") || Root("a", "b", "") == Root("a", "", "b") {
		t.Error("fields of the root run into each other")
	}
}

func TestContentOfLongBlock(t *testing.T) {
	tokens := make([]uint32, 4096)
	if ContentOf(tokens) == ContentOf(tokens[:4095]) {
		t.Error("long blocks collide")
	}
	if n := testing.AllocsPerRun(100, func() { ContentOf(tokens[:64]) }); n != 0 {
		t.Errorf("%v allocations for a block of 64 tokens, want 0", n)
	}
}

func TestTierNames(t *testing.T) {
	for i := Tier(0); i < NumTiers; i++ {
		got, err := ParseTier(i.String())
		if err != nil || got != i {
			t.Errorf("ParseTier(%q) = %v, %v", i.String(), got, err)
		}
		if !i.Mask().Has(i) || i.Mask().Has((i+1)%NumTiers) {
			t.Errorf("mask of %v", i)
		}
	}
	if _, err := ParseTier("tape"); err == nil {
		t.Error("an unknown tier must be refused")
	}
}

func BenchmarkAppendKeys(b *testing.B) {
	tokens := make([]uint32, 16384)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	root := Root("m", "", "")
	var dst []Key
	b.SetBytes(int64(4 * len(tokens)))
	for b.Loop() {
		dst = AppendKeys(dst[:0], root, tokens, 16)
	}
}
