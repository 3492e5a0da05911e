package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

// rendering returns what the router asks a worker for, as the router asks it.
func rendering(t *testing.T, w *Worker) func(path string, body any) engine.Rendered {
	t.Helper()
	spec, err := engine.ParseSpec(w.Spec())
	if err != nil {
		t.Fatal(err)
	}
	router, err := engine.NewWorker("c", spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(router.Close)
	return func(path string, body any) engine.Rendered {
		t.Helper()
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := router.Render(t.Context(), path, raw)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

var words3 = []any{message{"system", words(1, 200)}, message{"user", "what is this"}, message{"assistant", "it is"}}

// talk is words3 with a picture.
var talk = []any{
	message{"system", words(1, 200)},
	obj{"role": "user", "content": []obj{{"type": "text", "text": "what is"}, {"type": "image_url", "image_url": obj{"url": "http://x/y.png"}}, {"type": "text", "text": "this"}}},
	message{"assistant", "it is"},
}

// A rendered prompt has the tokens that the model computes, whoever tells them.
func TestRenderedIsWhatRuns(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		exact  bool
	}{
		{"render", nil, true},
		{"tokenize", func(c *Config) { c.NoRender = true }, false},
		{"SGLang", func(c *Config) { c.Engine = SGLang }, false},
	} {
		w := start(t, c.change)
		render := rendering(t, w)
		for _, body := range []obj{
			{"messages": talk},
			{"messages": talk, "tools": []obj{{"type": "function", "function": obj{"name": "f"}}}, "stream": false},
			{"messages": talk, "add_generation_prompt": false},
			{"messages": talk, "add_generation_prompt": false, "continue_final_message": true},
		} {
			body["max_tokens"] = 1
			got := render("/v1/chat/completions", body)
			ran := complete(t, w.URL()+"/v1/chat/completions", body)
			if got.Exact != c.exact || len(got.Tokens) != ran.Usage.PromptTokens {
				t.Errorf("%s: %d tokens rendered, exact %v, %d ran", c.name, len(got.Tokens), got.Exact, ran.Usage.PromptTokens)
			}
			if c.exact != (len(got.Media) == 1) || c.exact && got.Tokens[got.Media[0].Offset] != tokenImage {
				t.Errorf("%s: media %+v", c.name, got.Media)
			}
			body["messages"] = words3
			complete(t, w.URL()+"/v1/chat/completions", body)
			got = render("/v1/chat/completions", body)
			if again := complete(t, w.URL()+"/v1/completions", obj{"prompt": got.Tokens, "max_tokens": 1}); again.cached() < (len(got.Tokens)-1)/16*16 {
				t.Errorf("%s: of %d rendered tokens %d are those that ran", c.name, len(got.Tokens), again.cached())
			}
			if got.GenerationPrompt != (c.name == "SGLang" && body["add_generation_prompt"] == false && body["continue_final_message"] == nil) {
				t.Errorf("%s: generation prompt %v for %v", c.name, got.GenerationPrompt, body)
			}
		}
		text := render("/v1/completions", obj{"prompt": "once upon a time"})
		if !slices.Equal(text.Tokens, appendTokens(nil, []byte("once upon a time"))) {
			t.Errorf("%s: %v", c.name, text.Tokens)
		}
		if n := w.Renders(); n != 9 {
			t.Errorf("%s: %d renders counted", c.name, n)
		}
	}
}

// The keys of a rendered prompt with a picture are those that the KV events
// tell, in HBM and below, and another picture has others.
func TestMediaTellBlocksApart(t *testing.T) {
	for _, form := range []EventForm{FormMap, FormArray} {
		w := start(t, func(c *Config) { c.PoolTokens, c.EventForm = 1024, form })
		f := follow(t, w)
		render := rendering(t, w)
		url := w.URL() + "/v1/chat/completions"
		body := func(picture string) obj {
			return obj{"max_tokens": 1, "messages": []obj{{"role": "user", "content": []obj{{"type": "text", "text": words(1, 500)},
				{"type": "image_url", "image_url": obj{"url": picture}}, {"type": "text", "text": words(2, 500)}}}}}
		}
		first, second := complete(t, url, body("a")), complete(t, url, body("b"))
		r := render("/v1/chat/completions", body("a"))
		if want := r.Media[0].Offset / 16 * 16; first.cached() != 0 || second.cached() != want {
			t.Errorf("%s: another picture found %d tokens, want %d", form, second.cached(), want)
		}
		if again := complete(t, url, body("a")); again.cached() != (len(r.Tokens)-1)/16*16 {
			t.Errorf("%s: the same picture found %d of %d tokens", form, again.cached(), len(r.Tokens))
		}
		complete(t, w.URL()+"/v1/completions", obj{"prompt": words(3, 3700), "max_tokens": 1}) // spills most
		f.untilSame(t, w)
		told := slices.Collect(maps.Values(f.held.keys))
		key := kv.Root("m", "", "")
		for i := 0; i+16 <= len(r.Tokens); i += 16 {
			var texts []string
			if m := r.Media[0]; m.Offset < i+16 && m.Offset+m.Length > i {
				texts = append(texts, fmt.Sprintf("mm:%s@%d", m.Identifier, m.Offset-i))
			}
			key = kv.Next(key, kv.ContentOf(r.Tokens[i:i+16], texts...))
			if !slices.Contains(told, key) {
				t.Fatalf("%s: the block at token %d (media %v) has a key that no event tells", form, i, texts)
			}
		}
	}
}

func TestContinuedMessageStaysOpen(t *testing.T) {
	render := rendering(t, start(t, nil))
	closed := render("/v1/chat/completions", obj{"messages": talk, "add_generation_prompt": false})
	open := render("/v1/chat/completions", obj{"messages": talk, "add_generation_prompt": false, "continue_final_message": true})
	n := len(open.Tokens)
	if !slices.Equal(closed.Tokens[:n], open.Tokens) || !slices.Equal(closed.Tokens[n:], []uint32{tokenEnd}) {
		t.Errorf("closed %v\nopen %v", closed.Tokens[n-3:], open.Tokens[n-3:])
	}
	// With tools in front the media stand further back.
	tools := render("/v1/chat/completions", obj{"messages": talk, "tools": []obj{{}}})
	if m := tools.Media[0]; tools.Tokens[m.Offset] != tokenImage || m.Length != mediaTokens || m.Offset <= closed.Media[0].Offset {
		t.Errorf("media %+v", tools.Media)
	}
}

func TestRenderRefuses(t *testing.T) {
	spec, err := engine.ParseSpec(start(t, nil).Spec())
	if err != nil {
		t.Fatal(err)
	}
	router, err := engine.NewWorker("c", spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(router.Close)
	for _, body := range []string{
		`{"messages":[{"role":"user"}],"continue_final_message":true}`, `{"messages":[{"role":"user"}],"model":"other"}`, `{"prompt":"x"}`,
	} {
		for range 2 {
			if _, err := router.Render(t.Context(), "/v1/chat/completions", []byte(body)); err == nil || errors.Is(err, engine.ErrNoRender) {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
}
