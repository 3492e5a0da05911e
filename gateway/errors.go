package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

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
	errBodyForm         = errors.New("the request body is no whole multipart form of one model")
	errNoKey            = errors.New("the request has no API key: send it as Authorization: Bearer KEY")
	errBadKey           = errors.New("the API key is not valid here")
	errForbidden        = errors.New("the API key may not use this model")
	errStateGone        = errors.New("what the request goes on from is not known here any more")
	errBodySlow         = errors.New("the request body stopped arriving, or arrived too slowly")
	errNoModel          = errors.New("the request has no model")
	errBufferBudget     = errors.New("too many request bodies in memory")
	errUpstream         = errors.New("the worker failed")
	errUpstreamTimeout  = errors.New("the worker did not answer in time")
	errBrokenStream     = errors.New("the worker's response broke off")
	errNoReservation    = errors.New("no such reservation: released, expired, or made by another replica")
	errReservations     = errors.New("too much is reserved")
	errRouteOption      = errors.New("a field of the routing question can't be used")
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
	rateLimit      = "rate_limit_error"

	invalidJSON = "invalid_json"
)

// failures is the one table from errors to answers; the first match counts.
var failures = []failure{
	{is: errNoRoute, status: 404, kind: invalidRequest, code: "unknown_url"},
	{is: errMethod, status: 405, kind: invalidRequest, code: "method_not_allowed"},
	{is: errBodyTooLarge, status: 413, kind: invalidRequest, code: "request_too_large"},
	{is: errBodyEncoding, status: 415, kind: invalidRequest, code: "unsupported_encoding"},
	{is: errBodyType, status: 415, kind: invalidRequest, code: "unsupported_media_type"},
	{is: errBodyCorrupt, status: 400, kind: invalidRequest, code: "invalid_encoding"},
	{is: errBodyForm, status: 400, kind: invalidRequest, code: "invalid_multipart"},
	{is: errNoKey, status: 401, kind: invalidRequest, code: "missing_api_key"},
	{is: errBadKey, status: 401, kind: invalidRequest, code: "invalid_api_key"},
	{is: errForbidden, status: 403, kind: "permission_error", code: "model_not_allowed", param: "model"},
	{is: errStateGone, status: 404, kind: invalidRequest, code: "previous_response_not_found", param: "previous_response_id"},
	{is: route.ErrTooLong, status: 400, kind: invalidRequest, code: "context_length_exceeded",
		say: "the prompt and max_tokens together are longer than the model's context"},
	{is: errBodySlow, status: 408, kind: invalidRequest, code: "request_timeout"},
	{is: errNoModel, status: 400, kind: invalidRequest, code: "missing_model", param: "model"},
	{is: errBufferBudget, status: 503, kind: serverError, code: "overloaded", retryAfterSeconds: 1},
	{is: route.ErrUnknownModel, status: 404, kind: invalidRequest, code: "model_not_found", param: "model"},
	{is: route.ErrNoWorker, status: 503, kind: serverError, code: "no_worker", retryAfterSeconds: 1,
		say: "no worker can take the request now"},
	{is: route.ErrQueueClosed, status: 503, kind: serverError, code: "shutting_down", retryAfterSeconds: 1,
		say: "the router is shutting down"},
	{is: errUpstreamTimeout, status: 504, kind: serverError, code: "worker_timeout"},
	{is: errBrokenStream, status: 502, kind: serverError, code: "worker_stream_broken"},
	{is: errUpstream, status: 502, kind: serverError, code: "worker_failed"},
	{is: errNoReservation, status: 404, kind: invalidRequest, code: "unknown_reservation"},
	{is: errReservations, status: 429, kind: rateLimit, code: "too_many_reservations"},
	{is: errRouteOption, status: 400, kind: invalidRequest, code: "invalid_value"},
	{is: errShuttingDown, status: 503, kind: serverError, code: "shutting_down", retryAfterSeconds: 1},
}

// describe finds the answer to err.
func describe(err error) failure {
	if _, ok := errors.AsType[*prompt.SyntaxError](err); ok { // its text has the offset
		return failure{status: 400, kind: invalidRequest, code: invalidJSON, say: err.Error()}
	}
	if l, ok := errors.AsType[*limitError](err); ok {
		return failure{status: 429, kind: rateLimit, code: "rate_limit_exceeded", say: l.Error(),
			retryAfterSeconds: max(1, int(math.Ceil(l.retryAfter.Seconds())))}
	}
	if q, ok := errors.AsType[*route.QueueError](err); ok {
		code := "queue_timeout"
		if errors.Is(q, route.ErrQueueFull) {
			code = "queue_full"
		}
		return failure{status: 429, kind: rateLimit, code: code, say: q.Error(), retryAfterSeconds: max(1, int(math.Ceil(q.RetryAfter.Seconds())))}
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

// dialect is how a family of clients wants its errors.
type dialect bool

const (
	openAI    dialect = false
	anthropic dialect = true
)

// dialectOf returns the dialect of a path's clients.
func dialectOf(path string) dialect {
	return dialect(path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/"))
}

// object is the error as a dialect has it, without a line break.
func (f failure) object(d dialect) []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	var v any = struct {
		Error inner `json:"error"`
	}{inner{f.say, f.kind, orNull(f.param), orNull(f.code)}}
	if d == anthropic {
		type inner struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		}
		v = struct {
			Type  string `json:"type"`
			Error inner  `json:"error"`
		}{"error", inner{f.anthropicType(), f.say}}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings always encode
	}
	return b
}

// anthropicType is the error's type as the Messages API names them.
func (f failure) anthropicType() string {
	switch f.status {
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 413:
		return "request_too_large"
	case 429:
		return rateLimit
	case 503:
		return "overloaded_error"
	case 504:
		return "timeout_error"
	}
	if f.status < 500 {
		return invalidRequest
	}
	return "api_error"
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// write answers with the error.
func (f failure) write(w http.ResponseWriter, d dialect) {
	body := append(f.object(d), '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if f.retryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(f.retryAfterSeconds))
	}
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(f.status)
	w.Write(body) // a client that is gone needs no answer
}
