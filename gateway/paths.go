package gateway

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/rhizome-router/rhizome/prompt"
)

// routed are the paths that are known to go to workers, and how their prompts
// are read. Every other POST below /v1/ goes there too, by its model alone.
var routed = map[string]prompt.Kind{
	"/v1/chat/completions": prompt.Chat,
	"/v1/completions":      prompt.Completion,
	"/v1/embeddings":       prompt.Embedding,
	"/v1/responses":        prompt.Responses,
	"/v1/messages":         prompt.Messages,
	"/v1/rerank":           prompt.Other,
	"/v1/score":            prompt.Other,
	"/tokenize":            prompt.Other,
	"/detokenize":          prompt.Other,
}

// operators are paths below /v1/ by which vLLM's operators change what a worker
// serves, from whatever files or addresses a request names. No client gets there.
var operators = map[string]bool{"/v1/load_lora_adapter": true, "/v1/unload_lora_adapter": true}

// route finds out what a request asks for: a handler of the gateway's own, or,
// when that is nil, a worker.
func (g *Gateway) route(x *exchange) (kind prompt.Kind, own func(*exchange) error, err error) {
	switch {
	case x.path == "/healthz":
		own = g.health
	case x.path == "/readyz":
		own = g.ready
	case x.path == "/v1/models":
		own = g.models
	case strings.HasPrefix(x.path, "/v1/models/"):
		own = g.modelByID
	}
	if own != nil {
		if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
			return 0, nil, wrongMethod(x, "GET, HEAD")
		}
		return 0, own, nil
	}
	if operators[x.path] {
		return 0, nil, fmt.Errorf("%w: %s is for the workers' operators", errNoRoute, x.path)
	}
	if x.state = stateOf(x.path); x.state != "" {
		return prompt.Other, nil, nil
	}
	kind, known := routed[x.path]
	if !known {
		kind = prompt.Other
	}
	switch {
	case x.r.Method == http.MethodPost && (known || isPlainV1(x.path)) && x.r.URL.RawPath == "":
		return kind, nil, nil
	case known:
		return 0, nil, wrongMethod(x, "POST")
	}
	return 0, nil, fmt.Errorf("%w: %s %s", errNoRoute, x.r.Method, shorten(x.path))
}

// needsKey reports whether an answer of the gateway's own is for callers with
// a key alone. Whether the process lives is everyone's to know.
func needsKey(path string) bool { return strings.HasPrefix(path, "/v1/") }

func wrongMethod(x *exchange, allow string) error {
	x.w.Header().Set("Allow", allow)
	return fmt.Errorf("%w: %s wants %s", errMethod, x.path, allow)
}

// isPlainV1 reports whether p names something below /v1/ without detours.
func isPlainV1(p string) bool {
	rest, ok := strings.CutPrefix(p, "/v1/")
	return ok && !strings.Contains("/"+rest+"/", "/../") && !strings.Contains("/"+rest+"/", "/./")
}

// cleanPath removes trailing and double slashes, as careless base URLs make
// them.
func cleanPath(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	if len(p) > 1 {
		p = strings.TrimSuffix(p, "/")
	}
	return p
}

// shorten bounds what an error message repeats of a client's words.
func shorten(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
