package emulator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

func TestStreamShape(t *testing.T) {
	w := start(t, nil)
	res, raw := post(t, w.URL()+"/v1/chat/completions", obj{
		"model": "m", "stream": true, "max_tokens": 10, "stream_options": obj{"include_usage": true},
		"messages": []message{{"user", words(1, 400)}}, "temperature": 0.5, "unknown": []int{1},
	})
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || !strings.HasPrefix(ct, "text/event-stream") {
		t.Fatalf("%s %s: %s", res.Status, ct, raw)
	}
	events := sse(t, raw)
	if events[len(events)-1] != "[DONE]" {
		t.Fatalf("ends with %q", events[len(events)-1])
	}
	const role = `,"object":"chat.completion.chunk","created":`
	if !strings.HasPrefix(events[0], `{"id":"chatcmpl-`) || !strings.Contains(events[0], role) ||
		!strings.HasSuffix(events[0], `,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`) {
		t.Errorf("role chunk %s", events[0])
	}
	text := ""
	for _, e := range events[1 : len(events)-3] {
		c := decodeAs[completion](t, []byte(e))
		if len(c.Choices) != 1 || c.Choices[0].FinishReason != "" || c.Choices[0].Delta.Content == "" || c.Usage != nil {
			t.Errorf("delta chunk %s", e)
		}
		text += c.Choices[0].Delta.Content
	}
	if len(text) != 40 {
		t.Errorf("answer %q is not ten tokens", text)
	}
	if finish := decodeAs[completion](t, []byte(events[len(events)-3])); finish.Choices[0].FinishReason != "length" || finish.Choices[0].Delta.Content != "" {
		t.Errorf("finish chunk %s", events[len(events)-3])
	}
	usage := decodeAs[completion](t, []byte(events[len(events)-2]))
	if !strings.Contains(events[len(events)-2], `"choices":[]`) || usage.Usage == nil || usage.Usage.CompletionTokens != 10 ||
		usage.Usage.TotalTokens != 10+usage.Usage.PromptTokens {
		t.Errorf("usage chunk %s", events[len(events)-2])
	}
	for _, h := range []string{HeaderClock, HeaderBusy} {
		if v, err := strconv.ParseFloat(res.Header.Get(h), 64); err != nil || v <= 0 {
			t.Errorf("%s: %q", h, res.Header.Get(h))
		}
	}
	if res.Header.Get("x-emulator-worker") != "w" || res.Header.Get("x-emulator-speedup") != "200" ||
		res.Header.Get("x-emulator-hbm-tokens") != "0" || res.Header.Get("x-emulator-tier-tokens") != "0" {
		t.Errorf("headers %v", res.Header)
	}
	// The same request not streamed, and to another worker: the same answer.
	other := start(t, func(c *Config) { c.Seed = 7 })
	c := complete(t, other.URL()+"/v1/chat/completions", obj{"max_tokens": 10, "messages": []message{{"user", words(1, 400)}}})
	if got := c.Choices[0].Message; got.Content != text || got.Role != "assistant" || c.Object != "chat.completion" {
		t.Errorf("answer %q, streamed %q", got.Content, text)
	}
}

func TestCompletionsForms(t *testing.T) {
	w := start(t, nil)
	url := w.URL() + "/v1/completions"
	for _, c := range []struct {
		prompt          any
		choices, tokens int
	}{
		{"once upon", 1, 3},
		{[]string{"once upon", "a time"}, 2, 5},
		{[]int{1, 2, 3, 4294967295}, 1, 4},
		{[][]int{{1, 2}, {3}}, 2, 3},
	} {
		got := complete(t, url, obj{"prompt": c.prompt, "max_tokens": 3, "model": "m"})
		if len(got.Choices) != c.choices || got.Usage.PromptTokens != c.tokens || got.Usage.CompletionTokens != 3*c.choices ||
			got.Object != "text_completion" || len(got.Choices[0].Text) != 12 {
			t.Errorf("%v: %+v %+v", c.prompt, got, got.Usage)
		}
	}
	got := complete(t, url, obj{"prompt": "once upon", "max_tokens": 3, "n": 3})
	if len(got.Choices) != 3 || got.Usage.PromptTokens != 3 || got.Usage.CompletionTokens != 9 || got.Choices[0].Text == got.Choices[1].Text {
		t.Errorf("n = 3: %+v", got)
	}
	_, raw := post(t, url, obj{"prompt": []string{"x", "yy"}, "max_tokens": 2, "n": 2, "stream": true})
	finished := map[int]bool{}
	for _, e := range sse(t, raw) {
		if e == "[DONE]" {
			break
		}
		c := decodeAs[completion](t, []byte(e))
		if c.Choices[0].FinishReason != "" {
			finished[c.Choices[0].Index] = true
		}
	}
	if len(finished) != 4 {
		t.Errorf("%d choices finished, want 4", len(finished))
	}
}

func TestDefaultLengthStopsByItself(t *testing.T) {
	w := start(t, func(c *Config) { c.Speedup = 2000 })
	sum := 0
	for i := range 8 {
		c := complete(t, w.URL()+"/v1/completions", obj{"prompt": words(i, 100)})
		n := c.Usage.CompletionTokens
		if n < 64 || n > 192 || c.Choices[0].FinishReason != "stop" {
			t.Errorf("%d tokens, %s", n, c.Choices[0].FinishReason)
		}
		sum += n
	}
	if sum == 8*(sum/8) && sum/8 == 64 {
		t.Error("every answer has the least length")
	}
}

// A conversation that sends the answers back finds the KV of prompt and answer
// alike, up to the last whole block.
func TestSecondTurnIsCached(t *testing.T) {
	for _, maxTokens := range []int{0, 100} { // ends by itself, is cut off
		w := start(t, func(c *Config) { c.Speedup = 2000 })
		body := obj{"messages": []message{{"system", words(1, 1000)}, {"user", words(2, 300)}}}
		if maxTokens > 0 {
			body["max_tokens"] = maxTokens
		}
		first := complete(t, w.URL()+"/v1/chat/completions", body)
		if first.cached() != 0 {
			t.Fatalf("%d tokens cached at first", first.cached())
		}
		body["messages"] = append(body["messages"].([]message), first.Choices[0].Message, message{"user", "and then?"})
		second := complete(t, w.URL()+"/v1/chat/completions", body)
		// The KV of the last token was never computed.
		want := (first.Usage.TotalTokens - 1) / 16 * 16
		if second.cached() != want {
			t.Errorf("second turn: %d of %d tokens cached, want %d", second.cached(), second.Usage.PromptTokens, want)
		}
	}
}

func TestSaltSeparatesCaches(t *testing.T) {
	w := start(t, nil)
	body := obj{"prompt": words(1, 1000), "max_tokens": 1, "cache_salt": "a"}
	complete(t, w.URL()+"/v1/completions", body)
	if c := complete(t, w.URL()+"/v1/completions", body); c.cached() != 240 {
		t.Errorf("same salt: %d tokens cached", c.cached())
	}
	body["cache_salt"] = "b"
	if c := complete(t, w.URL()+"/v1/completions", body); c.cached() != 0 {
		t.Errorf("other salt: %d tokens cached", c.cached())
	}
}

func TestTokenizeIsWhatTheModelCounts(t *testing.T) {
	w := start(t, nil)
	tools := []obj{{"type": "function", "function": obj{"name": "f"}}}
	messages := []any{
		message{"system", "You are “helpful”.\n" + words(1, 100)},
		obj{"role": "user", "content": []obj{{"type": "text", "text": "what is"}, {"type": "image_url", "image_url": obj{"url": "http://x/y.png"}}}},
		obj{"role": "assistant", "content": nil, "tool_calls": []obj{{"id": "1"}}},
		obj{"role": "tool", "tool_call_id": "1", "content": "\u00fc\\n😀"},
	}
	type tokenized struct {
		Count       int
		MaxModelLen int `json:"max_model_len"`
		Tokens      []uint32
		TokenStrs   []string `json:"token_strs"`
	}
	ask := func(m []any, prompt bool) *tokenized {
		_, raw := post(t, w.URL()+"/tokenize", obj{"messages": m, "tools": tools, "add_generation_prompt": prompt, "return_token_strs": true})
		return decodeAs[tokenized](t, raw)
	}
	full := ask(messages, true)
	if full.Count != len(full.Tokens) || len(full.TokenStrs) != full.Count || full.MaxModelLen != w.cfg.MaxModelLen {
		t.Errorf("tokenize: %d, %d, %d", full.Count, len(full.Tokens), full.MaxModelLen)
	}
	chat := complete(t, w.URL()+"/v1/chat/completions", obj{"messages": messages, "tools": tools, "max_tokens": 1})
	if chat.Usage.PromptTokens != full.Count {
		t.Errorf("the model counted %d tokens, /tokenize %d", chat.Usage.PromptTokens, full.Count)
	}
	for n := 1; n <= len(messages); n++ {
		if part := ask(messages[:n], false); !slices.Equal(part.Tokens, full.Tokens[:part.Count]) {
			t.Errorf("%d messages are no token prefix of the conversation", n)
		}
	}
	_, raw := post(t, w.URL()+"/detokenize", obj{"tokens": full.Tokens})
	text := decodeAs[struct{ Prompt string }](t, raw).Prompt
	if !strings.HasPrefix(text, "<|im_start|>tools\n[") || !strings.Contains(text, "<|im_start|>tool\n1ü\\n😀<|im_end|>") || !strings.HasSuffix(text, "<|im_start|>assistant\n") {
		t.Errorf("detokenized %q", text)
	}
	_, raw = post(t, w.URL()+"/tokenize", obj{"prompt": "hello"})
	if got := decodeAs[tokenized](t, raw); got.Count != 2 {
		t.Errorf("tokenize a text: %s", raw)
	}
}

func TestEmbeddings(t *testing.T) {
	w := start(t, nil)
	_, raw := post(t, w.URL()+"/v1/embeddings", obj{"input": []string{"a text", "another"}, "model": "m"})
	got := decodeAs[struct {
		Data []struct {
			Embedding []float64
			Index     int
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
			TotalTokens  int `json:"total_tokens"`
		}
	}](t, raw)
	if len(got.Data) != 2 || len(got.Data[1].Embedding) != embeddingSize || got.Data[1].Index != 1 || got.Usage.PromptTokens != 4 || got.Usage.TotalTokens != 4 {
		t.Errorf("%s", raw)
	}
	_, raw = post(t, w.URL()+"/v1/embeddings", obj{"input": "a text", "encoding_format": "base64"})
	if v := decodeAs[struct{ Data []struct{ Embedding string } }](t, raw); len(v.Data) != 1 || len(v.Data[0].Embedding) != 44 {
		t.Errorf("%s", raw)
	}
}

func TestErrors(t *testing.T) {
	w := start(t, func(c *Config) { c.MaxModelLen, c.MaxBodyBytes = 1000, 5000 })
	chat, text := "/v1/chat/completions", "/v1/completions"
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{chat, `{"messages":[`, 400, "invalid request body"},
		{chat, `[]`, 400, "invalid request body"},
		{chat, `{} {}`, 400, "after the JSON value"},
		{chat, `{}`, 400, "messages: field required"},
		{chat, `{"messages":[]}`, 400, "must not be empty"},
		{chat, `{"messages":[{"content":"x"}]}`, 400, "role"},
		{chat, `{"messages":[{"role":"user","content":7}]}`, 400, "content"},
		{chat, `{"messages":[{"role":"user"}],"max_tokens":0}`, 400, "max_tokens"},
		{chat, `{"messages":[{"role":"user"}],"max_completion_tokens":1000}`, 400, "maximum context length is 1000"},
		{chat, `{"messages":[{"role":"user"}],"model":"other"}`, 404, "does not exist"},
		{chat, `{"messages":[{"role":"user"}],"stream":1}`, 400, "stream"},
		{chat, `{"messages":[{"role":"user"}],"n":1000}`, 400, "sequences"},
		{text, `{"prompt":[]}`, 400, "empty"},
		{text, `{"prompt":""}`, 400, "empty"},
		{text, `{"prompt":[1,"a"]}`, 400, "mixes"},
		{text, `{"prompt":[-1]}`, 400, "token id"},
		{text, `{"prompt":{"a":1}}`, 400, "prompt"},
		{text, `{"prompt":"` + strings.Repeat("a", 4000) + `"}`, 400, "maximum context length"},
		{text, `{"prompt":"` + strings.Repeat("a", 5000) + `"}`, 413, "too large"},
		{"/v1/nothing", `{}`, 404, "Not Found"},
	} {
		res, raw := post(t, w.URL()+c.path, c.body)
		e := decodeAs[struct {
			Error struct {
				Message, Type string
				Code          int
			}
		}](t, raw).Error
		if res.StatusCode != c.status || e.Code != c.status || !strings.Contains(e.Message, c.says) || e.Type == "" {
			t.Errorf("%s %.60s: %s %s, want %d with %q", c.path, c.body, res.Status, raw, c.status, c.says)
		}
		if res.Header.Get(HeaderWorker) != "w" {
			t.Error("an error does not name the worker")
		}
	}
	if st := w.Stats(); st.Requests != 0 {
		t.Errorf("%d of them reached the engine", st.Requests)
	}
}

func TestDisconnectFreesTheSlot(t *testing.T) {
	w := start(t, func(c *Config) { c.MaxSeqs, c.Speedup = 1, 20 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := `{"prompt":"` + words(1, 2000) + `","max_tokens":9000,"stream":true}`
	req, err := http.NewRequestWithContext(ctx, "POST", w.URL()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if st := w.Stats(); st.Running != 1 || st.HBM.UsedBlocks < 32 {
		t.Fatalf("running %d in %d blocks", st.Running, st.HBM.UsedBlocks)
	}
	cancel()
	// The one slot is free again: another request gets through. The first one
	// would have taken three more seconds.
	c := complete(t, w.URL()+"/v1/completions", obj{"prompt": "hello", "max_tokens": 1})
	if c.Usage.CompletionTokens != 1 {
		t.Error("no answer")
	}
	st := w.Stats()
	if st.Running+st.Waiting+st.HBM.UsedBlocks != 0 || st.Cancelled != 1 || st.GeneratedTokens > 5000 {
		t.Errorf("after the disconnect: %+v", st)
	}
}

func TestCPUTierIsLoaded(t *testing.T) {
	w := start(t, func(c *Config) {
		c.PoolTokens, c.MaxModelLen = 1600, 1500
		c.Tiers = []model.TierConfig{{Tier: kv.CPU, CapacityTokens: 6400}}
	})
	url := w.URL() + "/v1/completions"
	ask := func(seed int) (*http.Response, *completion) {
		res, raw := post(t, url, obj{"prompt": words(seed, 4000), "max_tokens": 1})
		return res, decodeAs[completion](t, raw)
	}
	ask(1)
	ask(2)
	res, c := ask(1)
	hbm, _ := strconv.Atoi(res.Header.Get(HeaderHBMTokens))
	tier, _ := strconv.Atoi(res.Header.Get(HeaderTierTokens))
	if tier == 0 || hbm+tier != 992 || c.cached() != 992 {
		t.Errorf("%d from HBM, %d loaded, %d cached; want 992", hbm, tier, c.cached())
	}
	if st := w.Stats(); st.TierHitTokens() != int64(tier) || st.HBMHitTokens != int64(hbm) {
		t.Errorf("stats %+v", st)
	}
}

func TestMetricsAndModels(t *testing.T) {
	w := start(t, nil)
	body := obj{"prompt": words(1, 1000), "max_tokens": 5}
	complete(t, w.URL()+"/v1/completions", body)
	complete(t, w.URL()+"/v1/completions", body)
	get := func(path string) string {
		res, err := client(t).Get(w.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %s %v", path, res.Status, err)
		}
		return string(raw)
	}
	text := get("/metrics")
	const l = `{engine="0",model_name="m"}`
	for _, want := range []string{
		"vllm:num_requests_running" + l + " 0", "vllm:num_requests_waiting" + l + " 0", "vllm:kv_cache_usage_perc" + l + " 0",
		"vllm:prompt_tokens_total" + l + " 500", "vllm:generation_tokens_total" + l + " 10",
		"vllm:prompt_tokens_cached_total" + l + " 240", "vllm:prefix_cache_queries_total" + l + " 500", "vllm:prefix_cache_hits_total" + l + " 240",
		"vllm:external_prefix_cache_queries_total" + l + " 260", "vllm:external_prefix_cache_hits_total" + l + " 0",
		"vllm:num_preemptions_total" + l + " 0", "vllm:kv_offload_load_bytes_total" + l + " 0", "vllm:kv_offload_load_time_total" + l + " 0",
		"vllm:time_to_first_token_seconds_count" + l + " 2", "vllm:inter_token_latency_seconds_count" + l + " 8",
		"vllm:request_queue_time_seconds_count" + l + " 2", "vllm:request_prefill_time_seconds_count" + l + " 2",
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 2`,
		`block_size="16"`, `num_gpu_blocks="1024"`, "process_start_time_seconds ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if m := get("/v1/models"); !strings.Contains(m, `"id":"m"`) || !strings.Contains(m, fmt.Sprintf(`"max_model_len":%d`, w.cfg.MaxModelLen)) {
		t.Errorf("models: %s", m)
	}
	get("/health")
	if v := get("/version"); !strings.Contains(v, "0.25") {
		t.Errorf("version: %s", v)
	}
}
