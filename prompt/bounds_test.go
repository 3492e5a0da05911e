package prompt

import (
	"runtime"
	"strings"
	"testing"
)

// TestHostile_BodiesDoNotMultiplyInMemory: what is kept of a body of very many
// very small parts has a bound of its own.
func TestHostile_BodiesDoNotMultiplyInMemory(t *testing.T) {
	many := func(start, part string, n int) []byte {
		return []byte(start + part + strings.Repeat(","+part, n) + "]}")
	}
	for name, c := range map[string]struct {
		kind Kind
		body []byte
	}{
		"empty messages":  {Chat, many(`{"messages":[`, `""`, 1<<20)},
		"empty inputs":    {Responses, many(`{"input":[`, `[]`, 1<<20)},
		"empty data URLs": {Chat, many(`{"messages":[`, `"data:;base64,"`, 1<<20)},
		"members":         {Chat, many(`{"messages":[`, `{"a":1}`, 1<<20)},
		"prompts":         {Completion, many(`{"prompt":[`, `"a"`, 1<<20)},
		"prompts of ids":  {Embedding, many(`{"input":[`, `[1]`, 1<<20)},
		"names":           {Responses, []byte(`{"model":"` + strings.Repeat("x", 4<<20) + `"}`)},
		"hints":           {Chat, []byte(`{"nvext":{"agent_hints":{"osl":1},"x":"` + strings.Repeat("x", 4<<20) + `"}}`)},
		"options":         {Chat, []byte(`{"stream_options":{"x":"` + strings.Repeat("x", 4<<20) + `"}}`)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := Parse(c.kind, c.body)
		if err == nil {
			r.ChunkKeys()
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 24<<20 {
			t.Errorf("%s: a body of %d bytes made %d", name, len(c.body), got)
		}
	}
}

// TestTheLastOfTooManyElements stands for all that follow, so that the size of
// a text prompt stays right.
func TestTheLastOfTooManyElements(t *testing.T) {
	part := `{"role":"user","content":"hi"}`
	body := `{"messages":[` + part + strings.Repeat(","+part, maxElements+9) + `]}`
	r, err := Parse(Chat, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if want := (maxElements+10)*len(part) + 10; r.TextBytes != want { // with the commas between the merged
		t.Errorf("%d bytes of text, want %d", r.TextBytes, want)
	}
	if _, err := Parse(Completion, []byte(`{"prompt":["a"`+strings.Repeat(`,"a"`, maxElements)+`]}`)); err == nil {
		t.Error("too many prompts were taken")
	}
	ids := []byte("[1" + strings.Repeat(",1", maxTokens) + "]")
	if _, err := tokenIDs(nil, member{raw: ids}); err == nil {
		t.Error("a prompt of too many token ids was taken")
	}
	if r, err := Parse(Chat, []byte(`{"n":1e9}`)); err != nil || r.N != maxChoices {
		t.Errorf("n is %+v, %v", r, err)
	}
}
