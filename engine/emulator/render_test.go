package emulator

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/rhizome-router/rhizome/engine"
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
			if again := complete(t, w.URL()+"/v1/completions", obj{"prompt": got.Tokens, "max_tokens": 1}); again.cached() < (len(got.Tokens)-1)/16*16 {
				t.Errorf("%s: of %d rendered tokens %d are those that ran", c.name, len(got.Tokens), again.cached())
			}
			if c.exact != (len(got.Media) == 1) || c.exact && got.Tokens[got.Media[0].Offset] != tokenImage {
				t.Errorf("%s: media %+v", c.name, got.Media)
			}
			if got.GenerationPrompt != (c.name == "SGLang" && body["add_generation_prompt"] == false && body["continue_final_message"] == nil) {
				t.Errorf("%s: generation prompt %v for %v", c.name, got.GenerationPrompt, body)
			}
		}
		text := render("/v1/completions", obj{"prompt": "once upon a time"})
		if !slices.Equal(text.Tokens, appendTokens(nil, []byte("once upon a time"))) {
			t.Errorf("%s: %v", c.name, text.Tokens)
		}
		if n := w.Renders(); n != 5 {
			t.Errorf("%s: %d renders counted", c.name, n)
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
