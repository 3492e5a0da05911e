package emulator

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/engine/model"
)

func TestMain(m *testing.M) {
	if os.Getenv(loadEnv) != "" {
		runLoad()
		return
	}
	goleak.VerifyTestMain(m)
}

// start runs a worker that is fast enough for tests: 200 times real time.
func start(t testing.TB, change func(*Config)) *Worker {
	t.Helper()
	cfg := Config{Name: "w", Model: "m", Speedup: 200, Preset: model.Preset{
		Name: "test", Linear: model.Linear{A: 6000, B: 10, C: 0.05, E: 20, Q: 0.001}, KVBytesPerToken: 131072, PoolTokens: 16384,
	}}
	if change != nil {
		change(&cfg)
	}
	w, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// client has no connections left after the test.
func client(t testing.TB) *http.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// post sends a body (a string as it is, anything else as JSON) and returns the
// answer's body.
func post(t testing.TB, url string, body any) (*http.Response, []byte) {
	t.Helper()
	raw, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		raw = string(b)
	}
	res, answer, err := postWith(client(t), url, raw)
	if err != nil {
		t.Fatal(err)
	}
	return res, answer
}

func postWith(c *http.Client, url, body string) (*http.Response, []byte, error) {
	res, err := c.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return res, answer, err
}

type obj = map[string]any

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// completion is what tests read of any answer or chunk.
type completion struct {
	ID, Object, Model string
	Choices           []struct {
		Index        int
		Text         string
		Message      message
		Delta        message
		FinishReason string `json:"finish_reason"`
	}
	Usage *struct {
		PromptTokens        int `json:"prompt_tokens"`
		CompletionTokens    int `json:"completion_tokens"`
		TotalTokens         int `json:"total_tokens"`
		PromptTokensDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	SGLExt *struct {
		CachedTokensDetails struct{ Device, Host int } `json:"cached_tokens_details"`
	}
}

func (c *completion) cached() int { return c.Usage.PromptTokensDetails.CachedTokens }

// complete posts and decodes a successful answer.
func complete(t testing.TB, url string, body any) *completion {
	t.Helper()
	res, raw := post(t, url, body)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, raw)
	}
	return decodeAs[completion](t, raw)
}

func decodeAs[T any](t testing.TB, raw []byte) *T {
	t.Helper()
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

// sse splits a stream into its data.
func sse(t testing.TB, raw []byte) []string {
	t.Helper()
	var out []string
	for event := range bytes.SplitSeq(bytes.TrimSuffix(raw, []byte("\n\n")), []byte("\n\n")) {
		data, ok := bytes.CutPrefix(event, []byte("data: "))
		if !ok || bytes.ContainsRune(data, '\n') {
			t.Fatalf("event %q", event)
		}
		out = append(out, string(data))
	}
	return out
}

// words returns English-like text of n bytes that depends on seed.
func words(seed, n int) string {
	const list = "the of and to in for on with as by at from this that which router cache block token worker prefix model "
	var b strings.Builder
	for x := uint32(seed)*2654435761 + 1; b.Len() < n; {
		x = x*1664525 + 1013904223
		from := int(x>>16) % (len(list) - 8)
		b.WriteString(list[from : from+8])
	}
	return b.String()[:n]
}
