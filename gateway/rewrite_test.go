package gateway

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

// rewritten returns a body as a worker's rank gets it under the named rewrites.
func rewritten(t *testing.T, kind prompt.Kind, body, model string, rank int16, names ...string) (got string, strip bool) {
	t.Helper()
	var s prompt.Scanner
	s.Scan([]byte(body))
	p, err := s.Request(kind, []byte(body), func(m string) string {
		if model != "" {
			return model
		}
		return m
	})
	if err != nil {
		t.Fatal(err)
	}
	x := &exchange{prompt: p, rewrites: names, json: true, r: newRequest(t)}
	x.body.received, x.body.plain = []byte(body), []byte(body)
	load := x.payload(&route.Decision{Target: kv.Target{Rank: rank}})
	for _, piece := range load.pieces {
		got += string(piece)
	}
	if int64(len(got)) != load.length {
		t.Errorf("%q is said to have %d bytes", got, load.length)
	}
	return got, x.strip
}

// odd is a body in which everything that another encoder would change stands.
const odd = ` {"seed":9007199254740993 , "x":{"id":18446744073709551615,"f":1e400,"g":1.0},"model" :"m\u0031","stream":true,` +
	`"messages":[{"content":"<b>&\u2028\ud800","role":"user"}],"unknown":{"a":[null]},"n":null } ` + "\n"

// TestRewriteUsage: the bytes but for the one member stay; the caller's own
// choice is respected.
func TestRewriteUsage(t *testing.T) {
	for _, c := range []struct {
		body, from, to string
		strip          bool
	}{
		{odd, ` {`, ` {"stream_options":{"include_usage":true},`, true},
		{`{"model":"m","stream":true,"stream_options":{"include_usage": false ,"x":1}}`, `false`, `true`, true},
		{`{"model":"m","stream":true,"stream_options":{"include_usage":null,"include_usage":false}}`, `false`, `true`, true},
		{`{"model":"m","stream":true,"stream_options":{ "continuous_usage_stats":true}}`, `s":{`, `s":{"include_usage":true,`, true},
		{`{"model":"m","stream":true,"stream_options":{}}`, `{}`, `{"include_usage":true}`, true},
		{`{"model":"m","stream":true,"stream_options":null}`, `null`, `{"include_usage":true}`, true},
		{`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, "", "", false},
		{`{"model":"m","stream":false}`, "", "", false},
	} {
		got, strip := rewritten(t, prompt.Chat, c.body, "", -1, rewriteUsage)
		if want := strings.Replace(c.body, c.from, c.to, 1); got != want || strip != c.strip {
			t.Errorf("%s\nbecame (strip %v)\n%s\nwant\n%s", c.body, strip, got, want)
		}
	}
	if got, strip := rewritten(t, prompt.Embedding, odd, "", -1, rewriteUsage); got != odd || strip {
		t.Errorf("an embedding became %s", got)
	}
}

func TestRewriteRank(t *testing.T) {
	if got, _ := rewritten(t, prompt.Chat, odd, "", 3, rewriteRank); got != strings.Replace(odd, "{", `{"routed_dp_rank":3,"data_parallel_rank":3,`, 1) {
		t.Errorf("became %s", got)
	}
	if got, _ := rewritten(t, prompt.Chat, odd, "", -1, rewriteRank); got != odd {
		t.Errorf("without a rank it became %s", got)
	}
	// A caller's own choice would count, standing behind the router's.
	own := `{"data_parallel_rank":7,"model":"m","routed_dp_rank": null ,"data_parallel_rank":"x"}`
	want := `{"data_parallel_rank":7,"model":"m","routed_dp_rank": 3 ,"data_parallel_rank":3}`
	if got, _ := rewritten(t, prompt.Chat, own, "", 3, rewriteRank); got != want {
		t.Errorf("a caller's ranks became %s", got)
	}
}

func TestRewriteServedModelName(t *testing.T) {
	if got, _ := rewritten(t, prompt.Chat, odd, `new "name"`, -1, rewriteServedModel); got != strings.Replace(odd, `"m\u0031"`, `"new \"name\""`, 1) {
		t.Errorf("became %s", got)
	}
	if got, _ := rewritten(t, prompt.Chat, plainBody, "", -1, rewriteServedModel); got != plainBody {
		t.Errorf("the same name became %s", got)
	}
	got, _ := rewritten(t, prompt.Chat, odd, "x", 0, rewriteNames...)
	want := strings.Replace(odd, `"m\u0031"`, `"x"`, 1)
	want = strings.Replace(want, "{", `{"stream_options":{"include_usage":true},"routed_dp_rank":0,"data_parallel_rank":0,`, 1)
	if got != want {
		t.Errorf("all of them made\n%s\nwant\n%s", got, want)
	}
}

// TestBR37_TheExtraUsageEventIsNotForTheClient compares the stream with that
// of a worker that was not asked, however it is cut.
func TestBR37_TheExtraUsageEventIsNotForTheClient(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		long := "data: " + chunkOf(strings.Repeat("long", maxHeldEventBytes/3)) + end
		plain := []string{": comment" + end, "data: " + chunkOf("a") + end, long, "data: {\"choices\":[{\"index\":0}]," + usageJSON + "}" + end,
			"data:{\"choices\":[],\"x\":1}" + end, "data: [DONE]" + end, "half"}
		want := strings.Join(plain, "")
		extra := append(append([]string{}, plain[:4]...), "data: {\"id\":\"c\",\"choices\":[ ],"+usageJSON+"}"+end)
		with := strings.Join(append(extra, plain[4:]...), "")
		rapid.Check(t, func(t *rapid.T) {
			var s usageStripper
			var got strings.Builder
			for rest := with; rest != ""; {
				n := rapid.IntRange(1, min(len(rest), 1<<rapid.IntRange(0, 20).Draw(t, "scale"))).Draw(t, "piece")
				got.Write(s.Write([]byte(rest[:n])))
				if len(s.held) > maxHeldEventBytes+n {
					t.Fatalf("%d bytes are held", len(s.held))
				}
				rest = rest[n:]
			}
			got.Write(s.Close())
			if got.String() != want {
				t.Fatalf("%d bytes came, want %d", got.Len(), len(want))
			}
		})
	}
}

// TestUsageRewriteEndToEnd: the worker is asked, the router learns, the client
// sees nothing of it.
func TestUsageRewriteEndToEnd(t *testing.T) {
	cfg := Config{Models: map[string]ModelConfig{"m": {Rewrites: []string{rewriteUsage}}}}
	answer := testkit.SSE(chunkOf("a"), `{"choices":[],`+usageJSON+`}`, "[DONE]")
	r := newRig(t, cfg, testkit.NewWorker(t, testkit.Script{testkit.Send(answer)}, testkit.Script{testkit.Send(answer)}))
	for body, sees := range map[string]bool{streamBody: false, strings.Replace(streamBody, "{", `{"stream_options":{"include_usage":true},`, 1): true} {
		a := r.post(chat, body)
		if a.err != nil || strings.Contains(a.body, `"usage"`) != sees || !strings.HasSuffix(a.body, "data: [DONE]\n\n") || !strings.HasPrefix(a.body, "data: {") {
			t.Errorf("the client got %+v", a)
		}
		if got := r.workers[0].Next(t); !strings.Contains(got.Body, `"include_usage":true`) || got.Length != int64(len(got.Body)) {
			t.Errorf("the worker got %s", got.Raw)
		}
	}
	r.stop()
	for _, o := range r.picker.outcomes {
		if o.Usage != wantUsage {
			t.Errorf("the router learned %+v", o)
		}
	}
}

// TestARewriteOfACompressedBody: what was compressed is sent plain, and says so.
func TestARewriteOfACompressedBody(t *testing.T) {
	cfg := Config{Models: map[string]ModelConfig{"alias": {To: []SplitConfig{{Model: "m"}}, Rewrites: []string{rewriteServedModel}}}}
	r := newRig(t, cfg, testkit.NewWorker(t, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))}))
	body := strings.Replace(plainBody, `"m"`, `"alias"`, 1)
	if a := r.post(chat, packed(t, "zstd", body), "Content-Encoding: zstd"); a.status != 200 {
		t.Fatalf("got %+v", a)
	}
	if got := r.workers[0].Next(t); got.Body != plainBody || got.Header.Get("Content-Encoding") != "" {
		t.Errorf("the worker got %s", got.Raw)
	}
}

// TestRewriteDecode: a compressed body goes plain to workers that don't decode,
// byte for byte what was compressed; with "*" for every model, and for forms.
func TestRewriteDecode(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{Models: map[string]ModelConfig{"*": {Rewrites: []string{rewriteDecode}}}}, w)
	form, contentType := formBody(t, "last", 1000)
	for body, header := range map[string]string{odd: "Content-Type: application/json", form: "Content-Type: " + contentType} {
		body = strings.Replace(body, `m\u0031`, "m", 1)
		path := map[bool]string{true: chat, false: "/v1/audio/transcriptions"}[strings.Contains(header, "json")]
		for coding, name := range map[string]string{"": "", "gzip": "gzip", "zstd": "zstd"} {
			sent, extra := body, "X-None: 1"
			if coding != "" {
				sent, extra = packed(t, coding, body), "Content-Encoding: "+name
			}
			if a := r.post(path, sent, header, extra); a.status != 200 {
				t.Fatalf("%s %s: %+v", header, coding, a)
			}
			if got := w.Next(t); got.Body != body || got.Length != int64(len(body)) || got.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s %s: the worker got %q", header, coding, got.Raw)
			}
		}
	}
	if a := r.post(chat, strings.Replace(plainBody, `"m"`, `"*"`, 1)); a.status != 404 {
		t.Errorf("a model of that name: %+v", a)
	}
}

// TestAliasesAndSplits: weights are kept, sessions stay, names are known.
func TestAliasesAndSplits(t *testing.T) {
	cfg := Config{TrustHints: true, Models: map[string]ModelConfig{
		"split": {To: []SplitConfig{{Model: "m", Weight: 3}, {Model: "gone"}}}, "gone": {}, "short": {To: []SplitConfig{{Model: "m"}}, MaxModelLen: 5}}}
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, cfg, w)
	body := strings.Replace(plainBody, `"m"`, `"split"`, 1)
	counts := map[int]int{}
	for i := range 400 {
		_ = i
		counts[r.post(chat, body).status]++
	}
	if n := counts[200]; counts[503] != 400-n || n < 260 || n > 340 {
		t.Errorf("of 400 requests, 3 in 4 of them for a model without workers: %v", counts)
	}
	if got := w.Next(t); got.Body != body {
		t.Errorf("without a rewrite the worker got %s", got.Body)
	}
	first := r.post(chat, body, "X-Agent-Workflow-Id: wf").status
	for range 20 {
		if got := r.post(chat, body, "X-Agent-Workflow-Id: wf").status; got != first {
			t.Fatal("a session changed its model")
		}
	}
	if a := ask(r.g, "GET", "/v1/models"); !strings.Contains(a.Body.String(), `"gone"`) || !strings.Contains(a.Body.String(), `"split"`) {
		t.Errorf("listed: %s", a.Body)
	}
	if a := r.post("/v1/completions", `{"model":"short","prompt":[1,2,3],"max_tokens":3}`); a.status != 400 || !strings.Contains(a.body, "context_length_exceeded") {
		t.Errorf("too long for its model: %+v", a)
	}
	if a := r.post("/v1/completions", `{"model":"short","prompt":"text is not counted","max_tokens":3}`); a.status != 200 {
		t.Errorf("a length that isn't known: %+v", a)
	}
}

// TestBR24_AModelWithoutWorkers is known, and says when to come again.
func TestBR24_AModelWithoutWorkers(t *testing.T) {
	r := newRig(t, Config{Models: map[string]ModelConfig{"asleep": {}}})
	for model, want := range map[string]int{"asleep": 503, "nobody": 404} {
		a := r.post(chat, `{"model":"`+model+`"}`)
		if a.status != want || (want == 503) != (a.header.Get("Retry-After") != "") {
			t.Errorf("%s gave %+v", model, a)
		}
	}
}

func TestModelConfigs(t *testing.T) {
	for want, m := range map[string]map[string]ModelConfig{
		"":                   {"a": {To: []SplitConfig{{Model: "b", Weight: 0.1}}, Rewrites: rewriteNames}},
		"is an alias too":    {"a": {To: []SplitConfig{{Model: "b"}}}, "b": {To: []SplitConfig{{Model: "c"}}}},
		"model is missing":   {"a": {To: []SplitConfig{{}}}},
		"the weight of b":    {"a": {To: []SplitConfig{{Model: "b", Weight: -1}}}},
		"is none of usage":   {"a": {Rewrites: []string{"all"}}},
		"max_model_len is -": {"a": {MaxModelLen: -1}},
		"rewrites in common": {"*": {To: []SplitConfig{{Model: "b"}}}},
	} {
		err := Config{Models: m}.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v gave %v, want %q", m, err, want)
		}
	}
}
