package workload

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/kv"
)

// token names one token by the meaning of spans: the k-th of a content.
type token struct {
	id uint64
	at int
}

func tokensOf(prompt []Span, answer Span) []token {
	var out []token
	for _, s := range append(slices.Clone(prompt), answer) {
		for k := range s.Tokens {
			out = append(out, token{s.ID, k})
		}
	}
	return out
}

// drawSpans makes sequences that often share a prefix, repeat a content, or end
// within one.
func drawSpans(t *rapid.T, name string) []Span {
	span := rapid.Custom(func(t *rapid.T) Span {
		return Span{rapid.Uint64Range(1, 3).Draw(t, "id"), rapid.SampledFrom([]int{0, 1, 3, 4, 7, 8, 20}).Draw(t, "tokens")}
	})
	return rapid.SliceOfN(span, 0, 6).Draw(t, name)
}

func TestBlockKeysAreEqualWhereTokensAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blockTokens := rapid.IntRange(1, 9).Draw(t, "block")
		a := drawSpans(t, "a")
		b := append(slices.Clone(a[:rapid.IntRange(0, len(a)).Draw(t, "shared")]), drawSpans(t, "b")...)
		answer := Span{rapid.Uint64Range(1, 3).Draw(t, "answer"), rapid.IntRange(0, 9).Draw(t, "answer tokens")}
		ta, tb := tokensOf(a, answer), tokensOf(b, Span{})
		ka := BlockKeys(nil, 7, a, answer, blockTokens)
		kb := BlockKeys([]kv.Key{9}, 7, b, Span{}, blockTokens)
		if kb[0] != 9 {
			t.Fatal("what dst held is gone")
		}
		kb = kb[1:]
		if len(ka) != len(ta)/blockTokens || len(kb) != len(tb)/blockTokens {
			t.Fatalf("%d and %d keys of %d and %d tokens", len(ka), len(kb), len(ta), len(tb))
		}
		for i := range min(len(ka), len(kb)) {
			end := (i + 1) * blockTokens
			if equal := slices.Equal(ta[:end], tb[:end]); equal != (ka[i] == kb[i]) {
				t.Fatalf("block %d: tokens equal %v, keys equal %v\n%v %v\n%v", i, equal, ka[i] == kb[i], a, answer, b)
			}
		}
		if i := len(ka) - 1; i >= 0 && BlockKeys(nil, 8, a, answer, blockTokens)[i] == ka[i] {
			t.Fatal("another root, the same keys")
		}
	})
}

func TestBlockKeysDoNotDependOnTheForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blockTokens := rapid.IntRange(1, 9).Draw(t, "block")
		spans := append(drawSpans(t, "spans"), Span{5, rapid.IntRange(0, 20).Draw(t, "last")})
		want := BlockKeys(nil, 7, spans, Span{}, blockTokens)
		whole := len(spans) - 1
		if got := BlockKeys(nil, 7, spans[:whole], spans[whole], blockTokens); !slices.Equal(got, want) {
			t.Fatal("as an answer the last span gives other keys")
		}
		at := rapid.IntRange(0, len(spans)).Draw(t, "at")
		if got := BlockKeys(nil, 7, slices.Insert(slices.Clone(spans), at, Span{ID: 4}), Span{}, blockTokens); !slices.Equal(got, want) {
			t.Fatal("an empty span changes the keys")
		}
	})
}

// A cache of block keys is what an infinite cache means; the prefix tree must
// find the same.
func TestInfiniteCacheIsASetOfBlockKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blockTokens := rapid.IntRange(1, 9).Draw(t, "block")
		var plan Plan
		for range rapid.IntRange(0, 8).Draw(t, "jobs") {
			var prompt []Span
			if n := len(plan.Jobs); n > 0 {
				from := plan.Jobs[rapid.IntRange(0, n-1).Draw(t, "from")]
				prompt = append(slices.Clone(from.Prompt), from.Answer)
				prompt = prompt[:rapid.IntRange(0, len(prompt)).Draw(t, "shared")]
			}
			prompt = append(prompt, drawSpans(t, "prompt")...)
			plan.Jobs = append(plan.Jobs, Job{Prompt: prompt, Answer: Span{rapid.Uint64Range(1, 3).Draw(t, "answer"), rapid.IntRange(0, 9).Draw(t, "tokens")}})
		}
		held := make(map[kv.Key]bool)
		for i, got := range InfiniteCache(&plan, blockTokens) {
			want := 0
			for _, k := range BlockKeys(nil, 7, plan.Jobs[i].Prompt, Span{}, blockTokens) {
				if !held[k] {
					break
				}
				want += blockTokens
			}
			for _, k := range BlockKeys(nil, 7, plan.Jobs[i].Prompt, plan.Jobs[i].Answer, blockTokens) {
				held[k] = true
			}
			if got != want {
				t.Fatalf("job %d: %d tokens, want %d\n%+v", i, got, want, plan)
			}
		}
	})
}

func TestBlockContentsAreTheBlocksOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blockTokens := rapid.IntRange(1, 5).Draw(t, "block")
		prompt, answer := append(drawSpans(t, "prompt"), drawSpans(t, "more")...), Span{1, rapid.IntRange(0, 9).Draw(t, "answer")}
		tokens := tokensOf(prompt, answer)
		key := kv.Key(7)
		keys, contents := Blocks(key, prompt, answer, blockTokens)
		if len(contents) != len(tokens)/blockTokens || !slices.Equal(keys, BlockKeys(nil, key, prompt, answer, blockTokens)) {
			t.Fatalf("%d contents of %d tokens, keys %x", len(contents), len(tokens), keys)
		}
		for i, c := range contents {
			if key = kv.Next(key, c); key != keys[i] {
				t.Fatalf("key %d is not chained from the contents", i)
			}
			for k := range i {
				equal := slices.Equal(tokens[i*blockTokens:][:blockTokens], tokens[k*blockTokens:][:blockTokens])
				if equal != (c == contents[k]) {
					t.Fatalf("blocks %d and %d: tokens equal %v, contents equal %v", k, i, equal, !equal)
				}
			}
		}
	})
}

func TestBlockKeysAllocateNothing(t *testing.T) {
	prompt := []Span{{1, 1000}, {2, 3}, {3, 5000}}
	dst := make([]kv.Key, 0, 1000)
	if n := testing.AllocsPerRun(100, func() { BlockKeys(dst, 1, prompt, Span{4, 100}, 16) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBlockKeys(b *testing.B) {
	prompt := []Span{{1, 20_000}, {2, 40_000}, {3, 60_000}}
	var dst []kv.Key
	for b.Loop() {
		dst = BlockKeys(dst[:0], 1, prompt, Span{4, 230}, 16)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(dst)), "ns/block")
}
