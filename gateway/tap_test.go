package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/route"
)

// tapped runs a tap over s cut at the given offsets.
func tapped(sse bool, s string, at ...int) (u route.Usage, failed, done bool) {
	t := &tap{sse: sse}
	from := 0
	for _, cut := range at {
		t.Write([]byte(s[from:cut]))
		from = cut
	}
	t.Write([]byte(s[from:]))
	t.Close()
	return t.usage, t.failed, t.Done()
}

func TestTapReadsUsage(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	split := strings.NewReplacer(`"usage":{`, "\"usage\":\ndata:  {\ndata: ", `"completion`, "\ndata: \"completion")
	for _, c := range []struct {
		name string
		sse  bool
		in   string
		want route.Usage
	}{
		{"json", false, `{"choices":[],` + usageJSON + `}`, wantUsage},
		{"json with spaces", false, "{\"usage\" :\n {\"prompt_tokens\": 5 , \"completion_tokens\":\t1}}", route.Usage{Known: true, PromptTokens: 5, CachedTokens: -1, CompletionTokens: 1}},
		{"json before much else", false, `{` + usageJSON + `,"prompt_logprobs":"` + long + `"}`, wantUsage},
		{"json after much else", false, `{"choices":"` + long + `",` + usageJSON + `}`, wantUsage},
		{"details null", false, `{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":null}}`, route.Usage{Known: true, PromptTokens: 5, CachedTokens: -1, CompletionTokens: 1}},
		{"usage null", false, `{"usage":null}`, route.Usage{}},
		{"usage told in text", false, `{"text":"{\"usage\":{\"prompt_tokens\":5}}"}`, route.Usage{}},
		{"usage as a value", false, `{"object":"usage","usage":[1]}`, route.Usage{}},
		{"nonsense counts", false, `{"usage":{"prompt_tokens":-1,"completion_tokens":1e99,"prompt_tokens_details":{"cached_tokens":"7"}}}`, route.Usage{}},
		{"duplicate members", false, `{"usage":{"prompt_tokens":1,"prompt_tokens":5,"completion_tokens":2}}`, route.Usage{Known: true, PromptTokens: 5, CachedTokens: -1, CompletionTokens: 2}},
		{"cut off", false, `{"usage":{"prompt_tokens":5,`, route.Usage{}},
		{"responses api", false, `{"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":3}}`, route.Usage{Known: true, PromptTokens: 9, CachedTokens: 4, CompletionTokens: 3}},
		{"messages api", true, "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":9,\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n" +
			"data: {\"usage\":{\"output_tokens\":30}}\n\n", route.Usage{Known: true, PromptTokens: 9, CachedTokens: 4, CompletionTokens: 30}},
		{"stream", true, "data: {\"usage\":null}\n\ndata: {" + usageJSON + "}\n\ndata: [DONE]\n\n", wantUsage},
		{"stream with CRLF", true, "data: {" + usageJSON + "}\r\n\r\ndata: [DONE]\r\n\r\n", wantUsage},
		{"stream with CR", true, "data:{" + usageJSON + "}\r\rdata:[DONE]\r\r", wantUsage},
		{"running totals", true, "data: {\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":1}}\n\ndata: {" + usageJSON + "}\n\n", wantUsage},
		{"long events", true, "data: {\"x\":\"" + long + "\"," + usageJSON + "}\n\n" + "data: " + long + "\n\n", wantUsage},
		{"several data lines", true, split.Replace("data: {" + usageJSON + "}\n\ndata: [DONE]\n\n"), wantUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _, _ := tapped(c.sse, c.in); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			var every []int
			for i := range min(len(c.in), 1000) {
				every = append(every, i)
				if got, _, _ := tapped(c.sse, c.in, i); got != c.want {
					t.Fatalf("cut at %d: got %+v, want %+v", i, got, c.want)
				}
			}
			if got, _, _ := tapped(c.sse, c.in, every...); got != c.want {
				t.Errorf("byte by byte: got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestTapKnowsEndsAndErrors(t *testing.T) {
	for in, want := range map[string]string{
		"data: x\n\ndata: [DONE]\n\n": "false true",
		"data: x\n\ndata:[DONE]":      "false true",
		"data: [DONE]\n\ndata: x\n\n": "false false",
		"data: say [DONE]\n\n":        "false false",
		"":                            "false false",
		"data: {\"error\":{}}\n\ndata: [DONE]\n\n":                  "true true",
		"data:{\"error\":{}}\n\n":                                   "true false",
		"event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n": "true false",
		"data: {\"type\": \"error\", \"code\":1}\r\n\r\n":           "true false",
		"data: {\"type\":\"error_free\"}\n\n":                       "false false",
		"data: {\"text\":\"data: {\\\"error\\\"\"}\n\n":             "false false",
		"data: {\"choices\":[{\"error\":1,\"x\":{\"error\"\n":       "false false",
	} {
		_, failed, done := tapped(true, in)
		if got := fmt.Sprint(failed, done); got != want {
			t.Errorf("%q: failed, done = %s, want %s", in, got, want)
		}
	}
}

func TestTapHoldsLittle(t *testing.T) {
	tap := &tap{sse: true}
	for range 100 {
		tap.Write([]byte(strings.Repeat("y", 100_000)))
		if cap(tap.window) > 2*tapWindowBytes {
			t.Fatalf("the window has grown to %d bytes", cap(tap.window))
		}
	}
}

// TestTapIsNotSlowedByNonsense: bytes made to be read in vain cost little.
func TestTapIsNotSlowedByNonsense(t *testing.T) {
	for _, piece := range []string{`"usage":{`, `"usage":{}`, `"usage":`, `{"error"`, "data: "} {
		s := strings.Repeat(piece, 200<<10/len(piece))
		objects := testing.AllocsPerRun(1, func() { tapped(true, s) })
		if objects > 20_000 {
			t.Errorf("200 KiB of %s cost %v allocations", piece, objects)
		}
	}
}

// TestTapIgnoresSplits: the result is the same however the bytes are cut.
func TestTapIgnoresSplits(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"data: ", "data:", "\n", "\r\n", "\r", "[DONE]", "{", "}", `"usage"`, ":", usageJSON, `{"error"`, `\"usage\":{`,
		`"usage":{"prompt_tokens":1}`, `"usage":{"completion_tokens":`, "3", " ", strings.Repeat("z", 5000), "\x00\xff",
	})
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "pieces"), "")
		sse := rapid.Bool().Draw(t, "sse")
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(s)), 0, 30).Draw(t, "cuts")
		slices.Sort(cuts)
		u1, f1, d1 := tapped(sse, s)
		u2, f2, d2 := tapped(sse, s, cuts...)
		if u1 != u2 || f1 != f2 || d1 != d2 {
			t.Fatalf("whole: %+v %v %v, cut: %+v %v %v", u1, f1, d1, u2, f2, d2)
		}
	})
}

func FuzzTap(f *testing.F) {
	f.Add(true, []byte("data: {"+usageJSON+"}\n\ndata: [DONE]\n\n"), uint16(7))
	f.Add(true, []byte("data: {\"usage\":\ndata: {\"prompt_tokens\":3}}\r\n\r\n"), uint16(1))
	f.Add(false, []byte(`{"choices":[],`+usageJSON+`}`), uint16(3))
	f.Add(false, []byte(`{"usage":{"prompt_tokens":9007199254740993}}`), uint16(2))
	f.Add(true, []byte("data: {\"error\":{}}\n"+strings.Repeat("k", 17<<10)), uint16(100))
	f.Fuzz(func(t *testing.T, sse bool, in []byte, step uint16) {
		u1, f1, d1 := tapped(sse, string(in))
		var cuts []int
		for i := 0; i < len(in); i += int(step) + 1 {
			cuts = append(cuts, i)
		}
		u2, f2, d2 := tapped(sse, string(in), cuts...)
		if u1 != u2 || f1 != f2 || d1 != d2 {
			t.Errorf("whole: %+v %v %v, cut: %+v %v %v", u1, f1, d1, u2, f2, d2)
		}
		if !u1.Known && u1 != (route.Usage{}) || u1.PromptTokens < 0 || u1.CompletionTokens < 0 || u1.CachedTokens < -1 {
			t.Errorf("usage %+v", u1)
		}
	})
}
