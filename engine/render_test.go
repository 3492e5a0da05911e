package engine

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/kv"
)

// answering answers each path as listed, others with a plain 404, and notes
// what was asked.
func answering(t *testing.T, engine string, answers map[string]string) (*Worker, *[]string) {
	var asked []string
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.Error(rw, `{"detail":"Not Found"}`, http.StatusNotFound)
			return
		}
		if status, rest, failed := strings.Cut(answer, "!"); failed {
			rw.WriteHeader(map[string]int{"400": 400, "404": 404, "500": 500}[status])
			answer = rest
		}
		io.WriteString(rw, answer)
	})
	w.identity.Store(&Identity{Engine: engine})
	return w, &asked
}

func TestRender(t *testing.T) {
	const image = `"features":{"mm_hashes":{"image":["a","b"],"audio":["c"]},"mm_placeholders":{"image":[{"offset":1,"length":2},{"offset":5,"length":1}],"audio":[{"offset":3,"length":2}]},"kwargs_data":{"image":["…"]}}`
	media := []MediaSpan{{"a", 1, 2}, {"c", 3, 2}, {"b", 5, 1}}
	for _, c := range []struct {
		name, engine, path string
		answers            map[string]string
		want               Rendered
		asked              string
	}{
		{"render", VLLM, chatPath, map[string]string{chatPath + "/render": `{"request_id":"x","token_ids":[1,2,4294967295],"features":null}`},
			Rendered{Tokens: []uint32{1, 2, 1<<32 - 1}, Exact: true}, "/v1/chat/completions/render"},
		{"media", VLLM, chatPath, map[string]string{chatPath + "/render": `{"token_ids":[1,2,3,4,5,6],` + image + `}`},
			Rendered{Tokens: []uint32{1, 2, 3, 4, 5, 6}, Media: media, Exact: true}, "/v1/chat/completions/render"},
		{"completions", VLLM, completionPath, map[string]string{completionPath + "/render": `[{"token_ids":[7]}]`},
			Rendered{Tokens: []uint32{7}, Exact: true}, "/v1/completions/render"},
		{"early chat", VLLM, chatPath, map[string]string{chatPath + "/render": `[[{"role":"user","content":"x"}],[{"prompt_token_ids":[7,8]}]]`},
			Rendered{Tokens: []uint32{7, 8}, Exact: true}, "/v1/chat/completions/render"},
		{"tokenize", VLLM, chatPath, map[string]string{"/tokenize": `{"count":2,"tokens":[7,8],"token_strs":null}`},
			Rendered{Tokens: []uint32{7, 8}}, "/v1/chat/completions/render /tokenize"},
		{"SGLang", SGLang, chatPath, map[string]string{"/v1/tokenize": `{"count":2,"tokens":[7,8]}`},
			Rendered{Tokens: []uint32{7, 8}, GenerationPrompt: true}, "/v1/tokenize"},
		{"SGLang, list", SGLang, completionPath, map[string]string{"/v1/tokenize": `{"count":[2],"tokens":[[7,8]]}`},
			Rendered{Tokens: []uint32{7, 8}}, "/v1/tokenize"},
	} {
		w, asked := answering(t, c.engine, c.answers)
		got, err := w.Render(t.Context(), c.path, []byte(`{"add_generation_prompt":false}`))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil || strings.Join(*asked, " ") != c.asked {
			t.Errorf("%s: %v, asked %v\n%s", c.name, err, *asked, diff)
		}
	}
}

func TestRenderErrors(t *testing.T) {
	const render = chatPath + "/render"
	for _, c := range []struct{ name, answer, says string }{
		{"wrong request", `400!{"error":{"message":"bad: SECRET"}}`, "400"},
		{"no such model", "404!" + `{"error":{"message":"The model ` + "`x`" + ` does not exist."}}`, "404"},
		{"server error", "500!", "500"},
		{"no JSON", "hello", "invalid character"},
		{"empty", "", "unexpected end"},
		{"no ids", "{}", "no token ids"},
		{"negative id", `{"token_ids":[-1]}`, "-1"},
		{"two prompts", `[{"token_ids":[1]},{"token_ids":[2]}]`, "2 prompts"},
		{"lists", "[[[[]]]]", "lists in lists"},
		{"media beyond the end", `{"token_ids":[1],"features":{"mm_hashes":{"i":["a"]},"mm_placeholders":{"i":[{"offset":1,"length":1}]}}}`, "in a prompt of 1"},
		{"media without names", `{"token_ids":[1],"features":{"mm_placeholders":{"i":[{"offset":0,"length":1}]}}}`, "0 media items"},
		{"media on media", `{"token_ids":[1,2],"features":{"mm_hashes":{"i":["a","b"]},"mm_placeholders":{"i":[{"offset":0,"length":2},{"offset":1,"length":1}]}}}`, "two media items"},
	} {
		w, asked := answering(t, VLLM, map[string]string{render: c.answer})
		for range 2 {
			_, err := w.Render(t.Context(), chatPath, []byte(`{}`))
			if err == nil || errors.Is(err, ErrNoRender) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), w.Spec.URL+":") ||
				strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if len(*asked) != 2 {
			t.Errorf("%s: asked %v", c.name, *asked)
		}
	}
	w, _ := answering(t, VLLM, nil)
	if _, err := w.Render(t.Context(), "/v1/embeddings", nil); err == nil || errors.Is(err, ErrNoRender) {
		t.Errorf("embeddings: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Render(ctx, chatPath, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What isn't there is asked for once in a life of the worker.
func TestRenderRemembersWhatIsAbsent(t *testing.T) {
	w, asked := answering(t, VLLM, map[string]string{})
	none := func() {
		t.Helper()
		if _, err := w.Render(t.Context(), chatPath, []byte(`{}`)); !errors.Is(err, ErrNoRender) || !strings.Contains(err.Error(), w.Spec.URL) {
			t.Errorf("%v", err)
		}
	}
	none()
	none()
	if want := []string{chatPath + "/render", "/tokenize"}; !slices.Equal(*asked, want) {
		t.Errorf("asked %v", *asked)
	}
	w.identity.Store(&Identity{Engine: VLLM, Boot: kv.Boot(7)}) // a new process
	none()
	if len(*asked) != 4 {
		t.Errorf("asked %v", *asked)
	}

	old, _ := answering(t, SGLang, map[string]string{"/v1/tokenize": `400!{"message":"[{'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}]"}`})
	if _, err := old.Render(t.Context(), chatPath, []byte(`{}`)); !errors.Is(err, ErrNoRender) {
		t.Errorf("SGLang that tokenises a prompt alone: %v", err)
	}
}

func TestRenderReadsNoEndlessAnswer(t *testing.T) {
	var sent atomic.Int64
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		chunk := []byte(`{"token_ids":[` + strings.Repeat(" ", 1<<20))
		for r.Context().Err() == nil {
			n, err := rw.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
			chunk = chunk[len(`{"token_ids":[`):]
			if len(chunk) < 1<<19 {
				chunk = []byte(strings.Repeat(" ", 1<<20))
			}
		}
	})
	_, err := w.Render(t.Context(), chatPath, []byte(`{}`))
	// What was sent and not read any more lies in the kernel's buffers.
	if !errors.Is(err, errBody) || sent.Load() > 2*maxRenderBytes {
		t.Errorf("%v after %d bytes", err, sent.Load())
	}
}

func FuzzParseRendered(f *testing.F) {
	for _, s := range []string{
		"", "{}", "[", `{"token_ids":[1]}`, `[{"prompt_token_ids":[1]}]`, `[[],[{"tokens":[[1]]}]]`, `[null,null]`, `{"tokens":{}}`,
		`{"token_ids":[1,2,3],"features":{"mm_hashes":{"i":["a"]},"mm_placeholders":{"i":[{"offset":0,"length":3}]}}}`,
		`{"token_ids":[1],"mm_hashes":{"i":["a"]},"mm_placeholders":{"i":[{"offset":9223372036854775807,"length":9223372036854775807}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := parseRendered(body)
		if err != nil {
			return
		}
		end := 0
		for _, m := range r.Media {
			if m.Offset < end || m.Length < 1 || m.Offset+m.Length > len(r.Tokens) {
				t.Fatalf("%+v among %d tokens", r.Media, len(r.Tokens))
			}
			end = m.Offset + m.Length
		}
	})
}
