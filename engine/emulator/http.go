package emulator

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Response headers of every answer; the later ones only once a sequence ran.
const (
	HeaderWorker     = "X-Emulator-Worker"
	HeaderSpeedup    = "X-Emulator-Speedup"
	HeaderClock      = "X-Emulator-Clock-Micros" // modelled time of the first token, or of the end if not streamed
	HeaderBusy       = "X-Emulator-Busy-Micros"  // modelled time in which the engine has worked until then
	HeaderHBMTokens  = "X-Emulator-Hbm-Tokens"   // prompt tokens found in HBM
	HeaderTierTokens = "X-Emulator-Tier-Tokens"  // prompt tokens loaded from a lower tier
)

func (w *Worker) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", w.generate(routeChat))
	mux.HandleFunc("POST /v1/completions", w.generate(routeCompletion))
	mux.HandleFunc("POST /v1/embeddings", w.generate(routeEmbedding))
	mux.HandleFunc("GET /v1/models", w.models)
	mux.HandleFunc("GET /metrics", func(rw http.ResponseWriter, r *http.Request) {
		promhttp.HandlerFor(w.life.Load().metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(rw, r)
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /emulator/restart", w.serveRestart)
	mux.HandleFunc("POST /emulator/slow", w.serveSlow)
	mux.HandleFunc("POST /emulator/mute", w.serveMute)
	w.dialect.routes(w, mux)
	mux.HandleFunc("/", func(rw http.ResponseWriter, _ *http.Request) {
		w.writeError(rw, http.StatusNotFound, "NotFoundError", "Not Found")
	})
	speedup := strconv.FormatFloat(w.cfg.Speedup, 'g', -1, 64)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set(HeaderWorker, w.cfg.Name)
		rw.Header().Set(HeaderSpeedup, speedup)
		defer w.inFlight.Add(-1)
		if w.inFlight.Add(1) > int64(w.cfg.MaxRequests) {
			rw.Header().Set("Retry-After", "1")
			w.writeError(rw, http.StatusServiceUnavailable, "ServiceUnavailableError", "the emulated worker has too many requests")
			return
		}
		mux.ServeHTTP(rw, r)
	})
}

// readRequest reads and parses a body, or answers with an error.
func (w *Worker) readRequest(rw http.ResponseWriter, r *http.Request, route route) (req *apiRequest, arrived float64, ok bool) {
	buf := w.bodies.Get().(*[]byte)
	defer w.bodies.Put(buf)
	body, err := appendAll((*buf)[:0], http.MaxBytesReader(rw, r.Body, w.cfg.MaxBodyBytes), r.ContentLength)
	*buf = body
	if cap(body) > 1<<20 {
		*buf = nil // do not hoard
	}
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		w.writeError(rw, status, "BadRequestError", "read the request body: "+err.Error())
		return nil, 0, false
	}
	arrived = w.owner.now()
	req, err = w.reading.request(route, body)
	if err != nil {
		w.writeError(rw, http.StatusBadRequest, "BadRequestError", err.Error())
		return nil, 0, false
	}
	if req.model != "" && req.model != w.cfg.Model {
		w.writeError(rw, http.StatusNotFound, "NotFoundError", "The model `"+req.model+"` does not exist.")
		return nil, 0, false
	}
	return req, arrived, true
}

// appendAll reads r to its end. sizeHint is what the client announced, −1 if
// nothing; no more than 1 MiB is taken on its word.
func appendAll(dst []byte, r io.Reader, sizeHint int64) ([]byte, error) {
	if hint := int(min(sizeHint, 1<<20)) + 1; hint > cap(dst) {
		dst = make([]byte, 0, hint)
	}
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

func (w *Worker) models(rw http.ResponseWriter, _ *http.Request) {
	type card struct {
		ID          string `json:"id"`
		Object      string `json:"object"`
		Created     int64  `json:"created"`
		OwnedBy     string `json:"owned_by"`
		Root        string `json:"root"`
		MaxModelLen int    `json:"max_model_len"`
	}
	writeJSON(rw, struct {
		Object string `json:"object"`
		Data   []card `json:"data"`
	}{"list", []card{{w.cfg.Model, "model", w.life.Load().started.Unix(), w.dialect.ownedBy, w.cfg.Model, w.cfg.MaxModelLen}}})
}

// clearCache empties the cache, which an engine refuses while requests run.
func (w *Worker) clearCache(rw http.ResponseWriter, _ *http.Request) {
	if cleared, err := ask(w, (*owner).clearCache); err != nil || !cleared {
		w.writeError(rw, http.StatusServiceUnavailable, "ServiceUnavailableError", "the prefix cache is in use; try again when no request runs")
	}
}

func writeJSON(rw http.ResponseWriter, v any) {
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(v) // the client is gone, if anything
}

// apiError is the inside of an error answer.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

// writeError answers as the engine does.
func (w *Worker) writeError(rw http.ResponseWriter, status int, kind, message string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(w.dialect.errorBody(apiError{Message: message, Type: kind, Code: status}))
}

// created is the time stamp of an answer.
func created() int64 { return time.Now().Unix() }
