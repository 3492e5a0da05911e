package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/rhizome-router/rhizome/kv"
)

// ErrNoRender says that a worker has no endpoint that tells a prompt's token
// ids.
var ErrNoRender = errors.New("the worker tells no token ids of prompts")

// Rendered is a prompt as an engine reads it.
type Rendered struct {
	Tokens []uint32
	// Media are the media items among the tokens, in their order. Only vLLM's
	// /render tells them: elsewhere a prompt with media has tokens that stand
	// for some media, and nothing says for which.
	Media []MediaSpan
	// Exact says that the engine rendered the body as it renders one to answer.
	// Where it is false the endpoint minds the messages, the tools and the
	// arguments of the template, but maybe not all else that can change a prompt
	// (tool_choice, reasoning_effort, response_format).
	Exact bool
	// GenerationPrompt says that the tokens end with the generation prompt
	// although the body asked for none: SGLang can't leave it out.
	GenerationPrompt bool
}

// MediaSpan is where a media item stands in a prompt.
type MediaSpan struct {
	// Identifier names the content, as in the block keys of KV events.
	Identifier string
	// Offset and Length are in tokens.
	Offset, Length int
}

const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"

	// maxRenderBytes bounds an answer. Beside the ids vLLM sends the tensors of
	// media items with it.
	maxRenderBytes  = 64 << 20
	maxRenderTokens = 1 << 23 // of no model's context
	maxMediaSpans   = 1 << 12
	maxRefusalBytes = 64 << 10
)

// renderer is one endpoint that tells token ids.
type renderer struct {
	path  string
	exact bool
}

// Render asks the worker which token ids the prompt of a request to path has:
// "/v1/chat/completions" or "/v1/completions", with a body as a client may send
// it, of one prompt. The members add_generation_prompt and
// continue_final_message are understood.
//
// vLLM is asked at path + "/render", which releases since 0.15 have, where
// VLLM_ENABLE_SCALE_OUT_ENDPOINTS=1 in later ones, else at /tokenize; SGLang at
// /v1/tokenize. An endpoint that isn't there is not asked again in this life of
// the worker; without any, the error wraps [ErrNoRender].
func (w *Worker) Render(ctx context.Context, path string, body []byte) (Rendered, error) {
	if path != chatPath && path != completionPath {
		return Rendered{}, fmt.Errorf("render a request to %s: only prompts of %s and %s can be rendered", path, chatPath, completionPath)
	}
	sglang := w.engine() == SGLang
	renderers := []renderer{{path + "/render", true}, {"/tokenize", false}}
	if sglang {
		renderers = []renderer{{"/v1/tokenize", false}}
	}
	life := w.renderLife()
	for _, r := range renderers {
		if w.absent.has(life, path, r.path) {
			continue
		}
		answer, err := w.post(ctx, r.path, body, maxRenderBytes)
		if isAbsent(err) {
			w.absent.add(life, path, r.path)
			continue
		}
		if err != nil {
			return Rendered{}, err
		}
		rendered, err := parseRendered(answer)
		if err != nil {
			return Rendered{}, fmt.Errorf("POST %s on worker %s: %w: %w", r.path, w.Spec.URL, errBody, err)
		}
		rendered.Exact = r.exact
		rendered.GenerationPrompt = sglang && path == chatPath && wantsNoGenerationPrompt(body)
		return rendered, nil
	}
	return Rendered{}, fmt.Errorf("render a request to %s on worker %s: %w", path, w.Spec.URL, ErrNoRender)
}

// wantsNoGenerationPrompt reports whether a chat asks for its messages alone,
// not for the beginning of an answer.
func wantsNoGenerationPrompt(body []byte) bool {
	var members struct {
		Add      *bool `json:"add_generation_prompt"`
		Continue bool  `json:"continue_final_message"`
	}
	return json.Unmarshal(body, &members) == nil && members.Add != nil && !*members.Add && !members.Continue
}

// post returns the answer to POST path, at most maxBytes long. Its errors wrap
// refusal where the worker answered otherwise than with success; they don't say
// how, since engines quote prompts.
func (w *Worker) post(ctx context.Context, path string, body []byte, maxBytes int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Spec.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := readAtMost(resp.Body, maxRefusalBytes)
		return nil, fmt.Errorf("POST %s on worker %s: %w", path, w.Spec.URL, &refusal{statusError{resp.StatusCode, resp.Status}, text})
	}
	answer, err := readAtMost(resp.Body, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("POST %s on worker %s: %w", path, w.Spec.URL, err)
	}
	return answer, nil
}

// refusal is an answer that is no success.
type refusal struct {
	statusError
	body []byte // may hold what the client sent: for decisions, not for logs
}

func (e *refusal) Unwrap() error { return &e.statusError }

// isAbsent reports whether an answer means that there is no such endpoint for
// such requests, rather than that this request was wrong: a model or an adapter
// that the worker doesn't have is a 404, too.
func isAbsent(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return false
	}
	says := func(text string) bool { return bytes.Contains(bytes.ToLower(r.body), []byte(text)) }
	switch r.code {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusNotFound:
		return !says("model")
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		// SGLang of 2025 tokenises a "prompt" alone, and says of a chat that the
		// body lacks one.
		return says("('body', 'prompt')") || says(`["body","prompt"]`)
	}
	return false
}

// renderLife is what a worker's endpoints depend on: another engine, release or
// process may have others.
type renderLife struct {
	engine, version string
	boot            kv.Boot
}

func (w *Worker) renderLife() renderLife {
	if id := w.identity.Load(); id != nil {
		return renderLife{id.Engine, id.Version, id.Boot}
	}
	return renderLife{engine: w.Spec.Engine}
}

// absences remembers which endpoints a life of the worker doesn't have. It is
// safe for concurrent use.
type absences struct {
	mu    sync.Mutex
	of    renderLife
	paths map[[2]string]bool // of requests to …, at …; at most four
}

func (a *absences) has(life renderLife, path, at string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of == life && a.paths[[2]string{path, at}]
}

func (a *absences) add(life renderLife, path, at string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of != life || a.paths == nil {
		a.of, a.paths = life, make(map[[2]string]bool)
	}
	a.paths[[2]string{path, at}] = true
}
