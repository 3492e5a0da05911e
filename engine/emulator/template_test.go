package emulator

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files anew")

var evening = time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)

// templateChats are what the goldens show of every template.
var templateChats = []struct{ name, body string }{
	{"two turns", `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"one?"},{"role":"assistant","content":"<think>\nhm\n</think>\n\nOne."},{"role":"user","content":"two?"}]}`},
	{"reasoning apart", `{"messages":[{"role":"user","content":"one?"},{"role":"assistant","reasoning_content":"hm","content":"One."},{"role":"user","content":"two?"}]}`},
	{"tools", `{"tools":[{"type":"function","function":{"name":"ls","parameters":{}}}],"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"list"},` +
		`{"role":"assistant","content":null,"reasoning_content":"a tool","tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"dir\":\"a, b\",\"n\":[1,2]}"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"x.go"}]}`},
	{"tools, later", `{"tools":[ {"type":"function","function":{"name":"ls","parameters":{}}} ],"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"list"},` +
		`{"role":"assistant","content":null,"reasoning_content":"a tool","tool_calls":[{"id":"c2","type":"function","function":{"name":"ls","arguments":"{\"dir\": \"a, b\", \"n\": [1, 2]}"}}]},` +
		`{"role":"tool","tool_call_id":"c2","content":"x.go"},{"role":"assistant","content":"x.go"},{"role":"user","content":"again"}]}`},
	{"arguments", `{"chat_template_kwargs":{"enable_thinking":false,"date_string":"01 Jan 2000"},"messages":[{"role":"user","content":"one?"}]}`},
	{"continued", `{"add_generation_prompt":false,"continue_final_message":true,"messages":[{"role":"user","content":"one?"},{"role":"assistant","content":"<think>hm</think>On"}]}`},
}

func TestTemplatesGolden(t *testing.T) {
	for _, name := range Templates() {
		var got bytes.Buffer
		for _, now := range []time.Time{evening, evening.Add(time.Second)} {
			rd := reading{template: Template(name), now: func() time.Time { return now }}
			for _, c := range templateChats {
				req, err := rd.request(routeChat, []byte(c.body))
				if err != nil {
					t.Fatalf("%s, %s: %v", name, c.name, err)
				}
				fmt.Fprintf(&got, "== %s, %s\n%s\n", c.name, now.Format(time.DateTime), detokenize(req.prompts[0]))
			}
			if Template(name) != TemplateDated {
				break
			}
		}
		file := "testdata/template_" + name + ".txt"
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (go test -update, if it is meant):\n%s", name, diff)
		}
	}
}

func prompt(t testing.TB, rd reading, body any) []uint32 {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := rd.request(routeChat, raw)
	if err != nil {
		t.Fatal(err)
	}
	return req.prompts[0]
}

// What the traits do to a conversation's beginning.
func TestTemplateTraits(t *testing.T) {
	begins := func(p, whole []uint32) bool { return len(p) <= len(whole) && slices.Equal(p, whole[:len(p)]) }
	user, next := message{"user", "one?"}, message{"user", "two?"}
	answer := message{"assistant", "<think>hm</think>One."}
	alone := func(m ...any) obj { return obj{"messages": m, "add_generation_prompt": false} }

	thinking := reading{template: TemplateThinking}
	if p := prompt(t, thinking, alone(user, answer)); !begins(p, prompt(t, thinking, alone(user, answer, obj{"role": "tool", "content": "x"}))) ||
		begins(p, prompt(t, thinking, alone(user, answer, next))) {
		t.Error("thinking: it must go when a user message follows, and not before")
	}
	tools := []obj{{"type": "function"}}
	last := reading{template: TemplateToolsLast}
	if p, q := prompt(t, last, obj{"messages": []any{user, answer}, "tools": tools, "add_generation_prompt": false}),
		prompt(t, last, obj{"messages": []any{user, answer, next}, "tools": tools}); begins(p, q) {
		t.Error("tools-last: the tools stay where they were")
	}
	now := evening
	dated := reading{template: TemplateDated, now: func() time.Time { return now }}
	before := prompt(t, dated, alone(user))
	now = now.Add(time.Second)
	if after := prompt(t, dated, alone(user)); slices.Equal(before, after) || len(after) != len(before) {
		t.Error("dated: midnight changes nothing, or the length")
	}
	call := func(id, arguments string) obj {
		return alone(user, obj{"role": "assistant", "tool_calls": []obj{{"id": id, "type": "function", "function": obj{"name": "f", "arguments": arguments}}}})
	}
	toolJSON := reading{template: TemplateToolJSON}
	if !slices.Equal(prompt(t, toolJSON, call("a", `{"x":"a: \"b\"","y":1}`)), prompt(t, toolJSON, call("b", "{ \"x\" : \"a: \\\"b\\\"\",\n\"y\":1 }"))) {
		t.Error("tool-json: white space and ids matter")
	}
	if slices.Equal(prompt(t, toolJSON, call("a", `{"x":"a:b"}`)), prompt(t, toolJSON, call("a", `{"x":"a: b"}`))) {
		t.Error("tool-json: white space in strings does not matter")
	}
	plain := new(reading)
	if p := prompt(t, *plain, alone(user, answer)); !begins(p, prompt(t, *plain, alone(user, answer, next))) {
		t.Error("plain: a conversation's beginning is not the beginning of its continuation")
	}
}

// What a model that thinks generates is what a step of an agent that sends it
// back goes on from.
func TestThinkingComesBackAsItWasGenerated(t *testing.T) {
	for _, maxTokens := range []int{0, 7, 100} {
		w := start(t, func(c *Config) { c.Template, c.Speedup = TemplateThinking, 2000 })
		body := obj{"messages": []any{message{"system", words(1, 1000)}, message{"user", words(2, 300)}}}
		if maxTokens > 0 {
			body["max_tokens"] = maxTokens
		}
		url := w.URL() + "/v1/chat/completions"
		first := complete(t, url, body)
		said := first.Choices[0].Message
		if thinks := strings.HasPrefix(said.Content, think) && strings.Contains(said.Content, thinkEnd); thinks != (maxTokens != 7) {
			t.Errorf("answer of %d tokens: %q", maxTokens, said.Content)
		}
		before := body["messages"].([]any)
		body["messages"] = append(slices.Clone(before), said, obj{"role": "tool", "tool_call_id": "1", "content": "x"})
		if step := complete(t, url, body); step.cached() != (first.Usage.TotalTokens-1)/16*16 {
			t.Errorf("%d tokens cached of %d", step.cached(), first.Usage.TotalTokens)
		}
		body["messages"] = append(slices.Clone(before), said, message{"user", "and then?"})
		// The answer's header is in both: the generation prompt.
		if turn := complete(t, url, body); maxTokens != 7 && turn.cached() != first.Usage.PromptTokens/16*16 {
			t.Errorf("a user message follows: %d tokens cached of %d", turn.cached(), first.Usage.PromptTokens)
		}
		body["chat_template_kwargs"] = obj{"enable_thinking": false}
		if quiet := complete(t, url, body); strings.Contains(quiet.Choices[0].Message.Content, think) {
			t.Errorf("told not to think: %q", quiet.Choices[0].Message.Content)
		}
	}
}

// Whoever tells the tokens of a chat, they are those that run, with any
// template.
func TestTemplatesAgree(t *testing.T) {
	for _, name := range Templates() {
		for _, change := range []func(*Config){nil, func(c *Config) { c.NoRender = true }, func(c *Config) { c.Engine = SGLang }} {
			w := start(t, func(c *Config) {
				c.Template, c.Speedup, c.Now = Template(name), 2000, func() time.Time { return evening }
				if change != nil {
					change(c)
				}
			})
			render := rendering(t, w)
			for _, c := range templateChats {
				var body obj
				if err := json.Unmarshal([]byte(c.body), &body); err != nil {
					t.Fatal(err)
				}
				body["max_tokens"] = 1
				got := render("/v1/chat/completions", body)
				ran := complete(t, w.URL()+"/v1/chat/completions", body)
				again := complete(t, w.URL()+"/v1/completions", obj{"prompt": got.Tokens, "max_tokens": 1})
				if len(got.Tokens) != ran.Usage.PromptTokens || again.cached() != (len(got.Tokens)-1)/16*16 {
					t.Errorf("%s, %s: %d rendered, %d ran, %d the same", name, c.name, len(got.Tokens), ran.Usage.PromptTokens, again.cached())
				}
			}
		}
	}
}

// No chat upsets a template, and every message's own text is in the prompt
// unless a trait takes it out.
func TestTemplatesTakeAnyChat(t *testing.T) {
	text := rapid.StringMatching(`[a-z]{1,6}`)
	value := rapid.OneOf(text.AsAny(), rapid.Just[any](nil), rapid.Just[any]([]obj{{"type": "text", "text": "part"}, {"image_url": 1}}),
		rapid.Just[any]("<think>a</think>"), rapid.Just[any]("</think><think>"))
	rapid.Check(t, func(t *rapid.T) {
		rd := reading{template: Template(rapid.SampledFrom(Templates()).Draw(t, "template")), alwaysPrompts: rapid.Bool().Draw(t, "always")}
		var messages []obj
		for range rapid.IntRange(1, 6).Draw(t, "messages") {
			m := obj{"role": rapid.SampledFrom([]string{"system", "user", "assistant", "tool"}).Draw(t, "role"), "content": value.Draw(t, "content")}
			if rapid.Bool().Draw(t, "calls") {
				m["tool_calls"] = []any{1, obj{"function": obj{"name": "f", "arguments": value.Draw(t, "arguments")}}}
			}
			messages = append(messages, m)
		}
		body := obj{"messages": messages, "tools": []any{value.Draw(t, "tools")}}
		if rapid.Bool().Draw(t, "continue") {
			body["continue_final_message"], body["add_generation_prompt"] = true, false
		}
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := rd.request(routeChat, raw)
		if err != nil {
			t.Fatal(err)
		}
		whole := detokenize(req.prompts[0])
		for _, m := range messages {
			if s, ok := m["content"].(string); ok && !strings.Contains(s, "think") && !strings.Contains(whole, s) {
				t.Fatalf("%q is not in %q", s, whole)
			}
		}
		for _, m := range req.media {
			if req.prompts[0][m.at] != tokenImage {
				t.Fatalf("no image at %d", m.at)
			}
		}
	})
}
