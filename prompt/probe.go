package prompt

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/engine"
)

// probesVersion names the set of probes. Another set gives other classes, so it
// changes whenever a probe does: what was learned before is then no more found.
const probesVersion = 1

// probe is a fixed request whose tokens tell how a worker renders prompts.
type probe struct{ path, members string }

const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"
)

// probes are five chats that real templates render differently, and a text. The
// first has what a template puts at the head of every chat, the date among it.
var probes = [...]probe{
	{chatPath, `"messages":[{"role":"system","content":"You answer in one word."},{"role":"user","content":"What is the capital of France?"}]`},
	// Thinking of an earlier turn: as a field, and as text.
	{chatPath, `"messages":[{"role":"user","content":"1+1?"},{"role":"assistant","reasoning_content":"Simple sum.","content":"<think>\nTwo.\n</think>\n\n2"},` +
		`{"role":"user","content":"And doubled?"},{"role":"assistant","content":"<think>\nFour.\n</think>\n\n4"}],"add_generation_prompt":false`},
	// Tools, a call and its result, between two messages of the user.
	{chatPath, `"messages":[{"role":"user","content":"Weather in Oslo?"},{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function",` +
		`"function":{"name":"weather","arguments":"{\"city\": \"Oslo\", \"days\":1}"}}]},{"role":"tool","tool_call_id":"call00001","name":"weather","content":"{\"c\":-3}"},` +
		`{"role":"user","content":"And tomorrow?"}],"tools":[{"type":"function","function":{"name":"weather","description":"Weather of a city",` +
		`"parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}}]`},
	// Scripts, numbers, code and blanks, on which vocabularies differ.
	{chatPath, `"messages":[{"role":"user","content":"naïve Straße 東京 مرحبا Привет 한국어 👩‍🚀 1234567890 3.14159 \t\tif (x<=y) { return x**2; }  \n\n  end"}]`},
	// The user speaks first and last, blanks at the ends.
	{chatPath, `"messages":[{"role":"user","content":" Hello there. "},{"role":"assistant","content":" Hi! \n"},{"role":"user","content":" Bye. "}]`},
	{completionPath, `"prompt":"The quick brown fox — naïve, 12345 times — said: \t{\"k\": [1, 2]}\n東京"`},
}

// probeTimeout bounds one question.
const probeTimeout = 5 * time.Second

// ask asks a worker one probe; refused says that it does not render such.
func (p *probe) ask(ctx context.Context, w *engine.Worker, model string) (hash uint64, refused bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	name, _ := json.Marshal(model) // a string always marshals
	told, err := w.Render(ctx, p.path, []byte(`{"model":`+string(name)+`,`+p.members+`}`))
	if engine.Refused(err) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	return hashTokens(told.Tokens), false, nil
}

// classify asks a worker all probes. first is the answer to the first of them,
// by which Recheck sees whether the class still holds. The class is 0 where the
// worker tells no tokens at all.
func classify(ctx context.Context, w *engine.Worker, model string) (class Class, first uint64, err error) {
	text := strings.Builder{}
	text.WriteString("probes " + strconv.Itoa(probesVersion))
	any := false
	for i := range probes {
		hash, refused, err := probes[i].ask(ctx, w, model)
		if err != nil {
			return 0, 0, fmt.Errorf("ask for the tokens of probe %d: %w", i, err)
		}
		any = any || !refused
		if i == 0 {
			first = hash
		}
		fmt.Fprintf(&text, " %x %t", hash, refused)
	}
	if !any {
		return 0, 0, nil
	}
	return Class(max(1, xxh3.HashString(text.String()))), first, nil
}
