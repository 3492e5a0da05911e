package prompt

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
)

// A fakeEngine renders prompts as real templates do, each with one of the traits
// by which a part of a conversation may be rendered otherwise than before. Its
// tokens are words.
type fakeEngine struct {
	stripThinking bool   // of turns before the user's last (Qwen3, DeepSeek)
	toolsLast     bool   // before the user's last message (Mistral)
	date          string // in the head (Llama 3.1, harmony)
	compactCalls  bool   // tool calls are written anew
	userFirst     bool   // nothing but a user's message, or system and user, may begin a chat
	prompted      bool   // a generation prompt can't be left out (SGLang's /v1/tokenize)
}

var fakeEngines = map[string]fakeEngine{
	"plain":         {},
	"thinking":      {stripThinking: true},
	"tools last":    {toolsLast: true, userFirst: true},
	"dated":         {date: "30 Nov 2026"},
	"calls anew":    {compactCalls: true},
	"all":           {stripThinking: true, toolsLast: true, date: "1 Dec 2026", compactCalls: true},
	"prompted":      {prompted: true},
	"prompted, all": {prompted: true, stripThinking: true, toolsLast: true},
}

type fakeMessage struct {
	Role      string           `json:"role"`
	Content   string           `json:"content"`
	ToolCalls []map[string]any `json:"tool_calls"`
}

var word = regexp.MustCompile(`<[^>]*>|\s*[^\s<]{1,5}|\s+|<`)

// tokenize gives equal words equal ids.
func tokenize(text string) []uint32 {
	var out []uint32
	for _, w := range word.FindAllString(text, -1) {
		out = append(out, uint32(xxh3.HashString(w)))
	}
	return out
}

var thinking = regexp.MustCompile(`(?s)<think>.*?</think>\s*`)

// render returns the tokens of a body; ok is false where the engine refuses it.
func (f fakeEngine) render(t testing.TB, body []byte) (tokens []uint32, ok bool) {
	t.Helper()
	var b struct {
		Messages []fakeMessage    `json:"messages"`
		Tools    *json.RawMessage `json:"tools"`
		Prompt   string           `json:"prompt"`
		Add      *bool            `json:"add_generation_prompt"`
		Effort   string           `json:"reasoning_effort"`
		Model    string           `json:"model"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatalf("a question can't be read: %v\n%s", err, body)
	}
	if b.Prompt != "" {
		return tokenize("<bos>" + b.Prompt), true
	}
	lastUser := -1
	for i, m := range b.Messages {
		if m.Role == "user" {
			lastUser = i
		}
	}
	if f.userFirst && lastUser < 0 {
		return nil, false
	}
	var s strings.Builder
	s.WriteString("<bos>")
	if f.date != "" {
		fmt.Fprintf(&s, "<head>Today: %s<eom>", f.date)
	}
	if b.Effort != "" {
		fmt.Fprintf(&s, "<effort>%s<eom>", b.Effort)
	}
	if b.Tools != nil && !f.toolsLast {
		fmt.Fprintf(&s, "<tools>%s<eom>", *b.Tools)
	}
	for i, m := range b.Messages {
		if b.Tools != nil && f.toolsLast && i == lastUser {
			fmt.Fprintf(&s, "<tools>%s<eom>", *b.Tools)
		}
		if f.stripThinking && i < lastUser && m.Role == "assistant" {
			m.Content = thinking.ReplaceAllString(m.Content, "")
		}
		fmt.Fprintf(&s, "<som>%s\n%s", m.Role, m.Content)
		if m.ToolCalls != nil {
			calls, _ := json.Marshal(m.ToolCalls)
			if !f.compactCalls {
				calls, _ = json.MarshalIndent(m.ToolCalls, "", " ")
			}
			fmt.Fprintf(&s, "<calls>%s", calls)
		}
		s.WriteString("<eom>\n")
	}
	if b.Add == nil || *b.Add || f.prompted {
		s.WriteString("<som>assistant\n")
	}
	return tokenize(s.String()), true
}

// fakeClasses remembers them.
var fakeClasses sync.Map

// class is what probes tell of the engine.
func (f fakeEngine) class(t testing.TB) Class {
	if c, ok := fakeClasses.Load(f); ok {
		return c.(Class)
	}
	c := f.classify(t)
	fakeClasses.Store(f, c)
	return c
}

func (f fakeEngine) classify(t testing.TB) Class {
	var all []uint32
	for _, p := range probes {
		tokens, _ := f.render(t, []byte(`{`+p.members+`}`))
		all = append(append(all, tokens...), 0)
	}
	return Class(hashTokens(all))
}

// teach is one request from its arrival to what is learned of it, if anything is
// worth a question.
func (f fakeEngine) teach(t testing.TB, l *Learned, body []byte) {
	t.Helper()
	r, err := Parse(kindOf(body), body)
	if err != nil {
		t.Fatal(err)
	}
	want := l.Note(r, f.class(t))
	if want.Gain == 0 {
		return
	}
	whole, ok := f.render(t, r.question(body, -1))
	if own, _ := f.render(t, body); !ok || !slices.Equal(own, whole) {
		t.Fatalf("asked about something else:\n%s\n%s", body, r.question(body, -1))
	}
	lesson := Lesson{Class: f.class(t), Request: r, Whole: whole, At: -1}
	if want.At >= 0 {
		part, ok := f.render(t, r.question(body, want.At))
		if !ok {
			l.Refuse(lesson.Class, r, want.At)
		} else {
			lesson.At, lesson.Part, lesson.Prompted = want.At, part, f.prompted && r.Kind == Chat
		}
	}
	l.Learn(lesson)
}

func kindOf(body []byte) Kind {
	if strings.Contains(string(body), `"prompt"`) {
		return Completion
	}
	return Chat
}

// check finds what is known of a body and holds it against what the engine
// makes of it: it may know less, and never anything else. It returns how many
// tokens are known.
func (f fakeEngine) check(t testing.TB, l *Learned, body []byte, form Form) int {
	t.Helper()
	r, err := Parse(kindOf(body), body)
	if err != nil {
		t.Fatal(err)
	}
	known := l.Find(r, f.class(t), form)
	tokens, _ := f.render(t, body)
	want := chain(nil, r.Model, r.Salt, tokens, form.of(r))
	if known.Tokens > len(tokens) || len(known.Keys) > len(want) || !slices.Equal(known.Keys, want[:len(known.Keys)]) {
		t.Fatalf("%d of %d tokens known, of which %d blocks are not the engine's:\n%s", known.Tokens, len(tokens), len(known.Keys), body)
	}
	if len(known.Keys) != known.Tokens/form.BlockTokens {
		t.Fatalf("%d blocks of %d tokens", len(known.Keys), known.Tokens)
	}
	return known.Tokens
}
