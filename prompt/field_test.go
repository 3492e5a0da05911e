package prompt

import (
	"fmt"
	"strings"
	"testing"
)

// TestBR59_KeysDifferWhereCachesDo: what makes an engine keep two prompts apart
// makes their keys differ, and what doesn't doesn't; nothing has the empty key.
func TestBR59_KeysDifferWhereCachesDo(t *testing.T) {
	image := func(data string) string {
		return `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what is this"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}]}]}`
	}
	key := func(kind Kind, body string) string {
		r := parse(t, kind, body)
		chunks := r.Chunks()
		if len(chunks) == 0 {
			if ids := r.TokenKeys(Form{BlockTokens: 2}); len(ids) > 0 {
				return fmt.Sprint("tokens ", ids)
			}
			t.Fatalf("no key for %.100s", body)
		}
		return fmt.Sprint(chunks[len(chunks)-1].Key)
	}
	seen := make(map[string]string)
	for name, got := range map[string]string{
		"text":               key(Chat, `{"model":"m","messages":[{"role":"user","content":"what is this"}]}`),
		"image A":            key(Chat, image(strings.Repeat("A", 5000))),
		"image B":            key(Chat, image(strings.Repeat("A", 4999)+"B")),
		"an adapter":         key(Chat, `{"model":"m-lora","messages":[{"role":"user","content":"what is this"}]}`),
		"a salt":             key(Chat, `{"model":"m","cache_salt":"a","messages":[{"role":"user","content":"what is this"}]}`),
		"another salt":       key(Chat, `{"model":"m","cache_salt":"b","messages":[{"role":"user","content":"what is this"}]}`),
		"a tool":             key(Chat, `{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"what is this"}]}`),
		"another tool":       key(Chat, `{"model":"m","tools":[{"type":"function","function":{"name":"g"}}],"messages":[{"role":"user","content":"what is this"}]}`),
		"instructions":       key(Responses, `{"model":"m","instructions":"be brief","input":"what is this"}`),
		"other instructions": key(Responses, `{"model":"m","instructions":"be long","input":"what is this"}`),
		"token ids":          key(Completion, `{"model":"m","prompt":[1,2,3,4]}`),
		"other token ids":    key(Completion, `{"model":"m","prompt":[1,2,3,5]}`),
		"a batch":            key(Completion, `{"model":"m","prompt":["what is this","and that"]}`),
	} {
		if other := seen[got]; other != "" {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[got] = name
	}
	for name, bodies := range map[string][2]string{
		"sampling": {`{"model":"m","messages":[{"role":"user","content":"hi"}]}`, `{"model":"m","temperature":0.3,"seed":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}`},
		"an image": {image("AAAA"), `{"user":"x",` + image("AAAA")[1:]},
	} {
		if a, b := key(Chat, bodies[0]), key(Chat, bodies[1]); a != b {
			t.Errorf("%s makes keys differ", name)
		}
	}
	// 20 MB of an image cost chunks that grow with it, and no more than some hundreds.
	if r := parse(t, Chat, image(strings.Repeat("A", 20<<20))); len(r.Chunks()) > 1000 || r.TextBytes > 1000 {
		t.Errorf("%d chunks, %d bytes of text", len(r.Chunks()), r.TextBytes)
	}
}
