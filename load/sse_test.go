package load

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const chatAnswer = `: a comment
event: message
data: {"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}

data: {"choices":[{"delta":{"content":"say \"usage\": {} and \"content\":\"x\""}}],"usage":null}

data: {"choices": [{"delta": {"content": " more"}}]}

data: {"choices":[{"delta":{"content":""},"finish_reason":"length"}]}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

`

// feedAll feeds the parts, the n-th at instant n.
func feedAll(parts ...string) (*stream, error) {
	s := new(stream)
	for i, p := range parts {
		if err := s.feed([]byte(p), instant(i)); err != nil {
			return s, err
		}
	}
	return s, s.end()
}

func TestStreamFindsTokensAndUsage(t *testing.T) {
	for name, answer := range map[string]string{"LF": chatAnswer, "CRLF": strings.ReplaceAll(chatAnswer, "\n", "\r\n")} {
		for size := 1; size <= len(answer); size += 7 {
			var parts []string
			for rest := answer; rest != ""; rest = rest[min(size, len(rest)):] {
				parts = append(parts, rest[:min(size, len(rest))])
			}
			s, err := feedAll(parts...)
			if err != nil || s.tokenEvents != 2 {
				t.Fatalf("%s in parts of %d: %d tokens, %v", name, size, s.tokenEvents, err)
			}
			if got := int(s.first) * size; got > strings.Index(answer, "more") || got+size <= strings.Index(answer, "say") {
				t.Fatalf("%s in parts of %d: first token in part %d", name, size, s.first)
			}
			want := usageCount{Known: true, PromptTokens: 9, CompletionTokens: 2, CachedTokens: 4, CachedKnown: true}
			if got := parseUsage(s.usage); got != want {
				t.Fatalf("%s in parts of %d: usage %+v", name, size, got)
			}
		}
	}
}

func TestCarriesToken(t *testing.T) {
	for event, want := range map[string]bool{
		`{"choices":[{"delta":{"role":"assistant","content":""}}]}`:                    false,
		`{"choices":[{"delta":{"content":null}}]}`:                                     false,
		`{"choices":[{"delta":{"content":"a"}}]}`:                                      true,
		`{"choices":[{"delta":{"content":"\""}}]}`:                                     true,
		`{"choices":[{"delta":{"content":"","reasoning_content":"hm"}}]}`:              true,
		`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"a\""}}]}}]}`: true,
		`{"choices":[{"text": " a"}]}`:                                                 true,
		`{"choices":[{"text":""}]}`:                                                    false,
		`{"choices":[],"usage":{"prompt_tokens":1}}`:                                   false,
		`{"choices":[{"text":""},{"text":"b"}]}`:                                       true,
	} {
		if got := carriesToken([]byte(event)); got != want {
			t.Errorf("%s: %v, want %v", event, got, want)
		}
	}
}

func TestStreamEnds(t *testing.T) {
	token := `data: {"choices":[{"text":"a"}]}` + "\n"
	if _, err := feedAll(token); !errors.Is(err, errNoDone) {
		t.Errorf("cut off: %v", err)
	}
	if _, err := feedAll("data: [DONE]\n"); !errors.Is(err, errNoToken) {
		t.Errorf("empty: %v", err)
	}
	if _, err := feedAll(token, `data: {"error":{"message":"worker died"}}`+"\n", "data: [DONE]\n"); err == nil || !strings.Contains(err.Error(), "worker died") {
		t.Errorf("error event: %v", err)
	}
	if _, err := feedAll("data: " + strings.Repeat("x", maxEventBytes)); !errors.Is(err, errLongEvent) {
		t.Errorf("endless event: %v", err)
	}
}

func TestParseUsage(t *testing.T) {
	for event, want := range map[string]usageCount{
		``:             {},
		`{"usage":`:    {},
		`{"usage":{}}`: {Known: true},
		`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":null}}`:                {Known: true, PromptTokens: 5, CompletionTokens: 1},
		`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}}`: {Known: true, PromptTokens: 5, CompletionTokens: 1, CachedTokens: 5, CachedKnown: true},
		`{"usage":{"prompt_tokens":-5}}`: {},
	} {
		if got := parseUsage([]byte(event)); got != want {
			t.Errorf("%s: %+v, want %+v", event, got, want)
		}
	}
}

// However an answer is cut, it says the same.
func FuzzStream(f *testing.F) {
	f.Add([]byte(chatAnswer), 5)
	f.Add([]byte("data:{\"error\":1}\r\ndata: [DONE]\ndata: {\"text\":\"late\"}\n"), 1)
	f.Add([]byte("data: {\"content\": \"a\",\"usage\":{\"prompt_tokens\":1e9}}\n\n"), 3)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		whole, err := feedAll(string(data))
		at = max(at, 0) % (len(data) + 1)
		cut, cutErr := feedAll(string(data[:at]), string(data[at:]))
		if (err == nil) != (cutErr == nil) {
			t.Fatalf("whole: %v, cut: %v", err, cutErr)
		}
		if d := cmp.Diff(whole, cut, cmp.AllowUnexported(stream{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(stream{}, "first", "last", "carry")); d != "" {
			t.Fatal(d)
		}
		parseUsage(whole.usage)
	})
}

func BenchmarkStreamEvent(b *testing.B) {
	event := []byte(`data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1764440000,"model":"m",` +
		`"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	var s stream
	for b.Loop() {
		if err := s.feed(event, 1); err != nil {
			b.Fatal(err)
		}
	}
}
