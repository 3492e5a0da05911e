package emulator

import "net/http"

// What tells a prompt's token ids and runs nothing. Like the engines', these
// answer while the worker is at work on other requests.

func (w *Worker) tokenize(rw http.ResponseWriter, r *http.Request) {
	req, _, ok := w.readRequest(rw, r, routeTokenize)
	if !ok {
		return
	}
	if len(req.prompts) != 1 {
		w.writeError(rw, http.StatusBadRequest, "BadRequestError", "prompt: must be one string")
		return
	}
	w.renders.Add(1)
	tokens := req.prompts[0]
	var strs []string
	if req.tokenStrs {
		for i := range tokens {
			strs = append(strs, detokenize(tokens[i:i+1]))
		}
	}
	writeJSON(rw, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{len(tokens), w.cfg.MaxModelLen, tokens, strs})
}

// detokenize answers with the text as the given member.
func (w *Worker) detokenize(member string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if req, _, ok := w.readRequest(rw, r, routeDetokenize); ok {
			writeJSON(rw, map[string]string{member: detokenize(req.tokens)})
		}
	}
}

// renderedRequest is what vLLM's /render answers: the request that its
// /inference/v1/generate would take. The tensors of media items are left out.
type renderedRequest struct {
	RequestID      string         `json:"request_id"`
	TokenIDs       []uint32       `json:"token_ids"`
	Features       *mediaFeatures `json:"features"`
	SamplingParams samplingParams `json:"sampling_params"`
	Model          string         `json:"model"`
	Stream         bool           `json:"stream"`
	CacheSalt      *string        `json:"cache_salt"`
	Priority       int            `json:"priority"`
}

type samplingParams struct {
	MaxTokens int `json:"max_tokens"`
	N         int `json:"n"`
}

// mediaFeatures says by kind of media which items there are and where.
type mediaFeatures struct {
	Hashes       map[string][]string     `json:"mm_hashes"`
	Placeholders map[string][]mediaRange `json:"mm_placeholders"`
}

type mediaRange struct {
	Offset int `json:"offset"`
	Length int `json:"length"`
}

func featuresOf(media []mediaItem) *mediaFeatures {
	if len(media) == 0 {
		return nil
	}
	const kind = "image"
	f := &mediaFeatures{make(map[string][]string), make(map[string][]mediaRange)}
	for _, m := range media {
		f.Hashes[kind] = append(f.Hashes[kind], m.id)
		f.Placeholders[kind] = append(f.Placeholders[kind], mediaRange{m.at, mediaTokens})
	}
	return f
}

// render answers with the prompt of a request to route: one object for a chat,
// a list of them for completions.
func (w *Worker) render(route route) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		req, _, ok := w.readRequest(rw, r, route)
		if !ok {
			return
		}
		w.renders.Add(1)
		var all []renderedRequest
		for _, p := range req.prompts {
			one := renderedRequest{
				RequestID: w.replyID(route, r), TokenIDs: p, Features: featuresOf(req.media),
				SamplingParams: samplingParams{req.maxTokens, req.n}, Model: w.cfg.Model, Stream: req.stream,
			}
			if req.salt != "" {
				one.CacheSalt = &req.salt
			}
			all = append(all, one)
		}
		if route == routeChat {
			writeJSON(rw, all[0])
			return
		}
		writeJSON(rw, all)
	}
}
