package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/route"
)

// modelObject is a model as the OpenAI API shows it; max_model_len is what
// vLLM and SGLang add.
type modelObject struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len,omitempty"`
}

func objectOf(m engine.Model) modelObject {
	return modelObject{ID: m.ID, Object: "model", OwnedBy: "rhizome", MaxModelLen: m.MaxModelLen}
}

// models answers GET /v1/models: the union over healthy workers.
func (g *Gateway) models(x *exchange) error {
	list := struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{"list", []modelObject{}}
	for _, m := range g.listed() {
		if !x.caller.mayUse(m.ID) {
			continue
		}
		list.Data = append(list.Data, objectOf(m))
	}
	return answerJSON(x, http.StatusOK, list)
}

// modelByID answers GET /v1/models/{id}; ids may contain slashes.
func (g *Gateway) modelByID(x *exchange) error {
	id := strings.TrimPrefix(x.path, "/v1/models/")
	for _, m := range g.listed() {
		if m.ID == id && x.caller.mayUse(id) {
			return answerJSON(x, http.StatusOK, objectOf(m))
		}
	}
	return fmt.Errorf("%w: no worker serves %q", route.ErrUnknownModel, shorten(id))
}

// health answers GET /healthz: the process lives.
func (g *Gateway) health(x *exchange) error {
	return answerJSON(x, http.StatusOK, status{"ok"})
}

// ready answers GET /readyz: this replica should get traffic. It says no more
// than yes or no, since anyone may ask.
func (g *Gateway) ready(x *exchange) error {
	ready := !g.draining.Load()
	switch {
	case !ready:
	case g.deps.Ready != nil:
		ready = g.deps.Ready() == nil
	default:
		ready = len(g.deps.Models()) > 0
	}
	if !ready {
		return answerJSON(x, http.StatusServiceUnavailable, status{"not ready"})
	}
	return answerJSON(x, http.StatusOK, status{"ready"})
}

type status struct {
	Status string `json:"status"`
}

// answerJSON answers with v.
func answerJSON(x *exchange, code int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	x.status = code
	x.w.WriteHeader(code)
	x.w.Write(append(body, '\n')) // a client that is gone needs no answer
	return nil
}
