package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// maxSpecBytes bounds what POST /workers takes.
const maxSpecBytes = 64 << 10

// addWorker answers POST /workers. The body is one worker as the configuration
// lists it: a mapping in JSON or YAML, or a line of text.
func (g *Gateway) addWorker(w http.ResponseWriter, r *http.Request) {
	bad := func(err error) {
		failure{status: http.StatusBadRequest, kind: invalidRequest, code: "invalid_worker", say: err.Error()}.write(w, openAI)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSpecBytes))
	if err != nil {
		bad(fmt.Errorf("read the worker: %w", err))
		return
	}
	spec, err := discover.ParseSpec(body)
	if err != nil {
		bad(err)
		return
	}
	if g.deps.Registry == nil {
		bad(errors.New("this router takes no workers"))
		return
	}
	id, err := g.deps.Registry.Add(spec)
	if err != nil {
		bad(err)
		return
	}
	w.Header().Set("Location", "/workers/"+id.String())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "{\"id\": %q, \"worker\": %q}\n", id, spec.URL) // a client that is gone needs no answer
}

// removeWorker answers DELETE /workers/{id}.
func (g *Gateway) removeWorker(w http.ResponseWriter, r *http.Request) {
	g.decide(w, r, func(id kv.WorkerID) error { return g.deps.Registry.Remove(id) })
}

// setDraining answers POST and DELETE /workers/{id}/drain.
func (g *Gateway) setDraining(w http.ResponseWriter, r *http.Request, draining bool) {
	g.decide(w, r, func(id kv.WorkerID) error { return g.deps.Registry.SetDraining(id, draining) })
}

// decide answers with how a decision on the worker in the path went.
func (g *Gateway) decide(w http.ResponseWriter, r *http.Request, do func(kv.WorkerID) error) {
	err := fleet.ErrNoWorker
	if id, bad := strconv.ParseUint(r.PathValue("id"), 16, 64); bad == nil && g.deps.Registry != nil {
		err = do(kv.WorkerID(id))
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, fleet.ErrNoWorker):
		failure{status: http.StatusNotFound, kind: invalidRequest, code: "unknown_worker",
			say: "no worker has this id; GET /workers lists them"}.write(w, openAI)
	default:
		failure{status: http.StatusConflict, kind: invalidRequest, code: "not_done", say: err.Error()}.write(w, openAI)
	}
}
