package emulator

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// generate handles the calls that run sequences: read, tokenise and name the
// blocks here, in the request's goroutine; then the owner runs them and this
// goroutine tells the client what comes out.
func (w *Worker) generate(route route) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if !w.door.enter() {
			w.refused(rw)
			return
		}
		defer w.door.leave()
		req, arrived, ok := w.readRequest(rw, r, route)
		if !ok {
			return
		}
		req.cacheDetails = req.cacheDetails && w.cfg.Engine == SGLang
		req.tokenIDs = req.tokenIDs && w.cfg.Engine == VLLM
		if route == routeEmbedding {
			req.n, req.maxTokens, req.stream = 1, 1, false
		}
		seqs, err := w.sequences(req)
		if err != nil {
			w.writeError(rw, http.StatusBadRequest, "BadRequestError", err.Error())
			return
		}
		c := newCall(seqs, req.n, req.stream, arrived)
		if err := w.tell(func(o *owner) { o.submit(c) }); err != nil {
			w.writeError(rw, http.StatusServiceUnavailable, "ServiceUnavailableError", err.Error())
			return
		}
		a := &reply{w: w, rw: rw, route: route, req: req, call: c, id: w.replyID(route, r), created: created()}
		if !a.run(r.Context()) {
			w.withdraw(c)
		}
	}
}

// withdraw gives the slots of a call back whose client listens no more.
func (w *Worker) withdraw(c *call) {
	_ = w.tell(func(o *owner) {
		for _, j := range c.jobs {
			o.cancel(j)
		}
	})
}

// sequences checks the limits and makes up the answers.
func (w *Worker) sequences(req *apiRequest) ([]*sequence, error) {
	if n := len(req.prompts) * req.n; n > maxSequences {
		return nil, fmt.Errorf("%d prompts with n = %d are %d sequences; at most %d are allowed", len(req.prompts), req.n, n, maxSequences)
	}
	var seqs []*sequence
	name := w.life.Load().name
	for _, p := range req.prompts {
		if len(p) == 0 {
			return nil, fmt.Errorf("the prompt is empty")
		}
		own := p[:len(p):len(p)]
		room := w.cfg.MaxModelLen - len(p)
		if room < max(req.maxTokens, 1) {
			return nil, fmt.Errorf("This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the prompt, %d in the completion). Please reduce the length of the prompt or the completion.",
				w.cfg.MaxModelLen, len(p)+req.maxTokens, len(p), req.maxTokens)
		}
		for choice := range req.n {
			if choice == req.n-1 {
				own = p // no other choice needs it
			}
			seqs = append(seqs, newSequence(name, own, extras{req.salt, req.media}, req.thinks, choice, req.maxTokens, room))
		}
	}
	return seqs, nil
}

// replyID names an answer as vLLM does: after the client's X-Request-Id if
// there is one of a sane form.
func (w *Worker) replyID(route route, r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	sane := func(c rune) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("-_.:", c)
	}
	if id == "" || len(id) > 128 || strings.ContainsFunc(id, func(c rune) bool { return !sane(c) }) {
		id = strconv.FormatUint(w.cfg.Seed, 36) + "-" + strconv.FormatUint(w.nextCall.Add(1), 36)
	}
	switch route {
	case routeChat:
		return "chatcmpl-" + id
	case routeCompletion:
		return "cmpl-" + id
	}
	return "embd-" + id
}
