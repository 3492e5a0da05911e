package prompt

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

func parse(t *testing.T, kind Kind, body string) *Request {
	t.Helper()
	r, err := Parse(kind, []byte(body))
	if err != nil {
		t.Fatalf("Parse(%s): %v", body, err)
	}
	return r
}

func TestParseFields(t *testing.T) {
	r := parse(t, Chat, `{"messages":[{"role":"user","content":"hi"}],"model":"old","stream":true,"n":2,
		"max_tokens":1e2,"model":"m\u0031","stream_options":{"include_usage":true},"seed":12345678901234567890123}`)
	if r.Model != "m1" || !r.Stream || !r.IncludeUsage || r.MaxTokens != 100 || r.N != 2 {
		t.Errorf("got %+v", r)
	}
	r = parse(t, Chat, `{"model":"m","max_completion_tokens":7,"stream":null,"n":null}`)
	if r.MaxTokens != 7 || r.Stream || r.N != 1 {
		t.Errorf("got %+v", r)
	}
}

func TestParsePromptForms(t *testing.T) {
	for _, c := range []struct {
		body          string
		tokens, extra int
		prompts, text int
	}{
		{`{"prompt":"abc"}`, 0, 0, 1, 5},
		{`{"prompt":[ 1 , 2,3 ]}`, 3, 0, 1, 0},
		{`{"prompt":[[1,2],[3]]}`, 2, 1, 2, 0},
		{`{"prompt":["abc","d"]}`, 0, 0, 2, 8},
		{`{"prompt":[]}`, 0, 0, 1, 0},
		{`{"prompt":null}`, 0, 0, 1, 0},
		{`{}`, 0, 0, 1, 0},
	} {
		r := parse(t, Completion, c.body)
		if len(r.Tokens) != c.tokens || r.ExtraTokens != c.extra || r.Prompts != c.prompts || r.TextBytes != c.text {
			t.Errorf("%s: %+v", c.body, r)
		}
	}
}

func TestParseErrorsCarryTheOffset(t *testing.T) {
	for _, c := range []struct {
		kind   Kind
		body   string
		offset int64
	}{
		{Chat, ``, 0},
		{Chat, `[1]`, 0},
		{Chat, `{"model":"m",}`, 13},
		{Chat, `{"model":"m"} x`, 14},
		{Chat, `{"model":7}`, 9},
		{Chat, `{"stream":"yes"}`, 10},
		{Chat, `{"n":0}`, 5},
		{Chat, `{"messages":{}}`, 12},
		{Completion, `{"prompt":[1,-2]}`, 13},
		{Completion, `{"prompt":[1,2.5]}`, 13},
		{Completion, `{"prompt":[1,4294967296]}`, 13},
		{Completion, `{"prompt":[1,"a"]}`, 13},
		{Completion, `{"prompt":[[1],7]}`, 15},
		{Completion, `{"prompt":7}`, 10},
		{Completion, `{"model":"m`, 11},
	} {
		_, err := Parse(c.kind, []byte(c.body))
		se, ok := errors.AsType[*SyntaxError](err)
		if !ok || se.Offset != c.offset {
			t.Errorf("%s: %v (offset wanted: %d)", c.body, err, c.offset)
		}
	}
}

func TestTokenKeysAreTheIndexKeys(t *testing.T) {
	r := parse(t, Completion, `{"model":"m","prompt":[1,2,3,4,100,300,70000,8,9]}`)
	want := kv.AppendKeys(nil, kv.Root("m", "", ""), []uint32{1, 2, 3, 4, 100, 300, 70000, 8}, 4)
	if got := r.TokenKeys(Form{BlockTokens: 4}); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
	salted := parse(t, Completion, `{"model":"m","cache_salt":"tenantA","prompt":[1,2,3,4,100,300,70000,8,9]}`)
	first := kv.Next(kv.Root("m", "", ""), kv.ContentOf([]uint32{1, 2, 3, 4}, "x:tenantA"))
	if got := salted.TokenKeys(Form{BlockTokens: 4}); got[0] != first || got[1] == want[1] {
		t.Errorf("a salt must be an extra of block 0: %v", got)
	}
	inRoot := kv.Next(kv.Root("m", "", "tenantA"), kv.ContentOf([]uint32{1, 2, 3, 4}))
	if got := salted.TokenKeys(Form{4, true}); got[0] != inRoot {
		t.Errorf("SGLang's salt must be in the root: %v", got)
	}
	if got := r.TokenKeys(Form{4, true}); got[1] != want[1] {
		t.Errorf("without a salt the forms are one: %v", got)
	}
	if len(salted.TokenKeys(Form{BlockTokens: 16})) != 0 || parse(t, Completion, `{"prompt":"x"}`).TokenKeys(Form{BlockTokens: 16}) != nil {
		t.Error("no whole block, no key")
	}
}

// Of a prompt of any length a 64th at most is lost behind the last chunk that
// matches, and its chunks stay few.
func TestLongPromptsHaveLongChunks(t *testing.T) {
	r := parse(t, Completion, `{"prompt":"`+strings.Repeat("a", 8<<20)+`"}`)
	last := 0
	for i, c := range r.Chunks() {
		if n := c.TextBytes - last; n > max(chunkBytes, last/longChunks) {
			t.Fatalf("chunk %d is %d bytes long behind %d", i, n, last)
		}
		last = c.TextBytes
	}
	if n := len(r.Chunks()); n > 2*longChunks*6 {
		t.Errorf("%d chunks of 8 MB", n)
	}
}

// A follow-up turn must match the whole conversation before it.
func TestChunksOfALongerConversationExtendTheShorter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringN(0, 4000, 8000), 1, 6).Draw(t, "messages")
		keep := rapid.IntRange(1, len(texts)).Draw(t, "keep")
		chunks := func(texts []string) []Chunk {
			var messages []map[string]string
			for _, s := range texts {
				messages = append(messages, map[string]string{"role": "user", "content": s})
			}
			raw, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
			if err != nil {
				t.Fatal(err)
			}
			r, err := Parse(Chat, raw)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(r.Chunks()); n > 0 && r.Chunks()[n-1].TextBytes != r.TextBytes {
				t.Fatalf("chunks cover %d of %d bytes", r.Chunks()[n-1].TextBytes, r.TextBytes)
			}
			return r.Chunks()
		}
		long, short := chunks(texts), chunks(texts[:keep])
		for i := range short {
			if short[i] != long[i] {
				t.Fatalf("chunk %d of %d differs", i, len(short))
			}
		}
		if len(long) > len(short) {
			for _, c := range long[len(short):] {
				if c.Key == short[len(short)-1].Key {
					t.Fatal("a longer prefix has a shorter one's key")
				}
			}
		}
	})
}

func TestChunkNamespaces(t *testing.T) {
	key := func(kind Kind, body string) kv.Key { return parse(t, kind, body).Chunks()[0].Key }
	base := key(Completion, `{"model":"m","prompt":"abc"}`)
	for _, other := range []kv.Key{
		key(Completion, `{"model":"n","prompt":"abc"}`),
		key(Completion, `{"model":"m","prompt":"abc","cache_salt":"s"}`),
		key(Embedding, `{"model":"m","input":"abc"}`),
	} {
		if other == base {
			t.Error("model, salt and kind must keep chunks apart")
		}
	}
}

func TestMediaIsNotText(t *testing.T) {
	body := `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`
	small, big := parse(t, Chat, fmt.Sprintf(body, "A")), parse(t, Chat, fmt.Sprintf(body, strings.Repeat("A", 100_000)))
	if big.TextBytes != small.TextBytes {
		t.Errorf("an image of 100 kB counts %d bytes as text", big.TextBytes-small.TextBytes)
	}
	if len(big.Chunks()) < 90 {
		t.Error("the image must still be part of the key")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(uint8(0), []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[],"stream":true}`))
	f.Add(uint8(1), []byte(`{"model":"m","prompt":[1,2,3],"stream_options":{"include_usage":true}}`))
	f.Add(uint8(1), []byte(`{"prompt":[[1],[2]],"n":2}`))
	f.Add(uint8(2), []byte(`{"input":["a","b"],"cache_salt":"s"}`))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		r, err := Parse(Kind(kind%4), body)
		if err != nil {
			if se, ok := errors.AsType[*SyntaxError](err); !ok || se.Offset < 0 || se.Offset > int64(len(body)) {
				t.Fatalf("bad error %v", err)
			}
			return
		}
		if r.TextBytes > len(body) || len(r.Tokens) > len(body) || r.N < 1 || r.Prompts < 1 {
			t.Fatalf("impossible sizes: %+v", r)
		}
		r.TokenKeys(Form{BlockTokens: 4})
	})
}

func BenchmarkParse48KB(b *testing.B) {
	body := []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("some words ", 4400) + `"}]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(Chat, body); err != nil {
			b.Fatal(err)
		}
	}
}
