package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

// What can go wrong at the front door. Everything else is an internal error.
var (
	errNoRoute          = errors.New("unknown path")
	errMethod           = errors.New("method not allowed")
	errBodyTooLarge     = errors.New("the request body is too large")
	errBodyEncoding     = errors.New("the request body's Content-Encoding is not supported")
	errBodyCorrupt      = errors.New("the request body does not decode as its Content-Encoding says")
	errBodyType         = errors.New("the request body must be JSON")
	errBodySlow         = errors.New("the request body stopped arriving")
	errNoModel          = errors.New("the request has no model")
	errBufferBudget     = errors.New("too many request bodies in memory")
	errUpstream         = errors.New("the worker failed")
	errUpstreamTimeout  = errors.New("the worker did not answer in time")
	errBrokenStream     = errors.New("the worker's response broke off")
	errShuttingDown     = errors.New("the router is shutting down")
	errClientGone       = errors.New("the client went away")
	errStreamUnfinished = fmt.Errorf("%w without its regular end", errBrokenStream)
)

// failure is how one kind of error looks to a client.
type failure struct {
	is                error
	status            int
	kind              string // "type" in the OpenAI error object
	code              string
	param             string
	retryAfterSeconds int
	// say is the message; empty means the error's own text, which must then
	// hold nothing internal.
	say string
}

const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
)

// failures is the one table from errors to answers; the first match counts.
var failures = []failure{
	{is: errNoRoute, status: 404, kind: invalidRequest, code: "unknown_url"},
	{is: errMethod, status: 405, kind: invalidRequest, code: "method_not_allowed"},
	{is: errBodyTooLarge, status: 413, kind: invalidRequest, code: "request_too_large"},
	{is: errBodyEncoding, status: 415, kind: invalidRequest, code: "unsupported_encoding"},
	{is: errBodyType, status: 415, kind: invalidRequest, code: "unsupported_media_type"},
	{is: errBodyCorrupt, status: 400, kind: invalidRequest, code: "invalid_encoding"},
	{is: errBodySlow, status: 408, kind: invalidRequest, code: "request_timeout"},
	{is: errNoModel, status: 400, kind: invalidRequest, code: "missing_model", param: "model"},
	{is: errBufferBudget, status: 503, kind: serverError, code: "overloaded", retryAfterSeconds: 1},
	{is: route.ErrUnknownModel, status: 404, kind: invalidRequest, code: "model_not_found", param: "model"},
	{is: route.ErrNoWorker, status: 503, kind: serverError, code: "no_worker", retryAfterSeconds: 1,
		say: "no worker can take the request now"},
	{is: errUpstreamTimeout, status: 504, kind: serverError, code: "worker_timeout"},
	{is: errBrokenStream, status: 502, kind: serverError, code: "worker_stream_broken"},
	{is: errUpstream, status: 502, kind: serverError, code: "worker_failed"},
	{is: errShuttingDown, status: 503, kind: serverError, code: "shutting_down", retryAfterSeconds: 1},
}

// describe finds the answer to err.
func describe(err error) failure {
	if _, ok := errors.AsType[*prompt.SyntaxError](err); ok { // its text has the offset
		return failure{status: 400, kind: invalidRequest, code: "invalid_json", say: err.Error()}
	}
	for _, f := range failures {
		if errors.Is(err, f.is) {
			if f.say == "" {
				f.say = err.Error()
			}
			return f
		}
	}
	return failure{status: 500, kind: serverError, code: "internal", say: "internal error"}
}

// object is the error in the OpenAI shape, without a line break.
func (f failure) object() []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	b, err := json.Marshal(struct {
		Error inner `json:"error"`
	}{inner{f.say, f.kind, orNull(f.param), orNull(f.code)}})
	if err != nil {
		panic(err) // strings always encode
	}
	return b
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// write answers with the error.
func (f failure) write(w http.ResponseWriter) {
	body := append(f.object(), '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if f.retryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(f.retryAfterSeconds))
	}
	w.WriteHeader(f.status)
	w.Write(body) // a client that is gone needs no answer
}
