package workload

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Two prompts share exactly as many leading bytes as their ids say, give or
// take the chance that unrelated blocks begin with the same words.
func TestPromptPrefixLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Request {
			ids := rapid.SliceOfN(rapid.Uint64Range(0, 3), 1, 6).Draw(t, name)
			short := rapid.IntRange(0, BlockTokens-1).Draw(t, name+" short")
			return Request{InputTokens: len(ids)*BlockTokens - short, HashIDs: ids}
		}
		a, b := draw("a"), draw("b")
		text := Text{Seed: rapid.Uint64().Draw(t, "seed")}
		pa, pb := text.AppendPrompt(nil, &a), text.AppendPrompt([]byte("kept"), &b)[len("kept"):]
		if len(pa) != a.InputTokens*BytesPerToken || len(pb) != b.InputTokens*BytesPerToken {
			t.Fatalf("lengths %d and %d of %+v and %+v", len(pa), len(pb), a, b)
		}
		ids := commonPrefix(a.HashIDs, b.HashIDs)
		least := min(ids*BlockBytes, len(pa), len(pb))
		if got := commonPrefix(pa, pb); got < least || got > least+64 {
			t.Fatalf("%d common bytes for %d common ids", got, ids)
		}
	})
}

func TestTextNeedsNoEscaping(t *testing.T) {
	text := Text{Seed: 3}.Append(nil, 5, 100_000)
	quoted, err := json.Marshal(string(text))
	if err != nil || len(quoted) != len(text)+2 {
		t.Errorf("quoting %d bytes gives %d, %v", len(text), len(quoted), err)
	}
	if short := (Text{Seed: 3}).Append(nil, 5, 777); !bytes.HasPrefix(text, short) {
		t.Error("a shorter text of an id does not lead the longer one")
	}
	for _, other := range []struct {
		seed, id uint64
	}{{4, 5}, {3, 6}, {5, 3}} {
		if n := commonPrefix(text, Text{other.seed}.Append(nil, other.id, 1000)); n > 32 {
			t.Errorf("seed %d id %d shares %d bytes with seed 3 id 5", other.seed, other.id, n)
		}
	}
}

func TestPromptTokensAreOneArray(t *testing.T) {
	r := Request{InputTokens: BlockTokens + 3, HashIDs: []uint64{1, 2}}
	var got []uint32
	if err := json.Unmarshal(Text{}.AppendPromptTokens(nil, &r), &got); err != nil {
		t.Fatal(err)
	}
	want := Text{}.AppendTokens(Text{}.AppendTokens(nil, 1, BlockTokens), 2, 3)
	if !slices.Equal(got, want) {
		t.Errorf("array of %d ids differs from the %d asked for", len(got), len(want))
	}
}

func commonPrefix[T comparable](a, b []T) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func BenchmarkAppendPrompt(b *testing.B) {
	r := Request{InputTokens: 12_000}
	for i := range (r.InputTokens + BlockTokens - 1) / BlockTokens {
		r.HashIDs = append(r.HashIDs, uint64(i))
	}
	for _, form := range []string{"text", "tokens"} {
		b.Run(form+"/"+strconv.Itoa(r.InputTokens), func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				if form == "text" {
					buf = Text{}.AppendPrompt(buf[:0], &r)
				} else {
					buf = Text{}.AppendPromptTokens(buf[:0], &r)
				}
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}
