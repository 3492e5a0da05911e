package emulator

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

func FuzzTokenizer(f *testing.F) {
	f.Add("", 0)
	f.Add("The quick brown fox", 7)
	f.Add("\x00\x00\x00", 1)
	f.Add("ü😀<|im_end|>é\x00", 3)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		tokens := appendTokens(nil, []byte(text))
		if got := detokenize(tokens); got != text {
			t.Fatalf("%q became %q", text, got)
		}
		if len(tokens) != (len(text)+pieceBytes-1)/pieceBytes {
			t.Fatalf("%d bytes are %d tokens", len(text), len(tokens))
		}
		for _, id := range tokens {
			if id >= specialMark {
				t.Fatalf("%q holds the special token %x", text, id)
			}
		}
		// A beginning has the same tokens but for its last piece.
		n := max(0, min(cut, len(text)))
		part := appendTokens(nil, []byte(text[:n]))
		if whole := n / pieceBytes; !slices.Equal(part[:whole], tokens[:whole]) {
			t.Fatalf("%q cut at %d is no prefix", text, n)
		}
	})
}

func TestDetokenizeAnything(t *testing.T) {
	for _, id := range []uint32{0, tokenStart, tokenEnd, specialMark | 77, shortMark, shortMark | 1<<24 | 'a', 0xFC000000, 0xF7FFFFFF, 1<<32 - 1} {
		if s := detokenize([]uint32{id}); s == "" || !utf8.ValidString(s) {
			t.Errorf("token %x is %q", id, s)
		}
	}
}

func TestAnswer(t *testing.T) {
	a := answer{seed: 1, n: 50}
	text := string(a.appendText(nil, 0, a.n))
	var tokens []uint32
	for i := range a.n {
		tokens = append(tokens, a.token(i))
	}
	if !slices.Equal(appendTokens(nil, []byte(text)), tokens) {
		t.Errorf("%q does not give the tokens it was made of", text)
	}
	if raw, _ := jsontext.AppendQuote(nil, text); string(raw) != `"`+text+`"` {
		t.Errorf("%q needs escaping", text)
	}
	a.stop = true
	if a.token(49) != tokenEnd || string(a.appendText(nil, 0, 50)) != text[:49*4] {
		t.Error("an answer that stops ends with a token without text")
	}
	if b := (answer{seed: 2, n: 50}); string(b.appendText(nil, 0, 50)) == text {
		t.Error("two seeds, one answer")
	}
}

// Whatever a client sends: no panic, and what is accepted is consistent.
func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `[`, `{"prompt":"x"}`, `{"prompt":["x",[1]]}`, `{"prompt":[[1],[2]],"n":2}`, `{"input":[1,2]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a\u00e9\ud800"},"b",{"image_url":{}}]}],"tools":[{}],"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[1]}],"max_tokens":3,"max_completion_tokens":null}`,
		`{"messages":[{"role":"assistant","content":"<think>a</think>b","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":\"\\\"\"}"}}]}],"chat_template_kwargs":{"date_string":"x"}}`,
		`{"tokens":[1,2]}`, `{"model":"\xff","prompt":1e3}`, `{"max_tokens":-1}`, "{\"prompt\":\"\xff\"}", `{"a":1}{"b":2}`,
	} {
		for r := range int(routeDetokenize+1) * len(Templates()) {
			f.Add(uint8(r), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, r uint8, body []byte) {
		rt := route(r % uint8(routeDetokenize+1))
		before := string(body)
		rd := reading{template: Template(Templates()[int(r)/int(routeDetokenize+1)%len(Templates())])}
		req, err := rd.request(rt, body)
		if string(body) != before {
			t.Fatal("the body was written to")
		}
		if err != nil {
			return
		}
		if rt != routeDetokenize && len(req.prompts) == 0 {
			t.Fatal("accepted without a prompt")
		}
		if len(req.prompts) > maxSequences || req.n < 1 || req.maxTokens < 0 || !utf8.ValidString(req.model) {
			t.Fatalf("accepted %+v", req)
		}
	})
}
