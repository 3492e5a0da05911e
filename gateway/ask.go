package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

// routeOptions are the fields that POST /v1/route reads besides those of the
// request that it is asked about.
type routeOptions struct {
	// Path is where the request would be sent; default /v1/completions for one
	// with a prompt and no messages, else /v1/chat/completions. The query
	// parameter path says the same, and goes first.
	Path string `json:"path"`
	// Reserve books the decision for ReserveSeconds.
	Reserve        bool     `json:"reserve"`
	ReserveSeconds *float64 `json:"reserve_seconds"`

	Messages present `json:"messages"`
	Prompt   present `json:"prompt"`
}

// present is whether a field is there, whatever it holds.
type present bool

// UnmarshalJSON is called for every value, null too.
func (p *present) UnmarshalJSON([]byte) error {
	*p = true
	return nil
}

// lasts is how long a reservation is asked for.
func (o *routeOptions) lasts() (time.Duration, error) {
	if o.ReserveSeconds == nil {
		return defaultReserve, nil
	}
	seconds := *o.ReserveSeconds
	if !(seconds > 0 && seconds <= maxReserve.Seconds()) {
		return 0, fmt.Errorf("%w: reserve_seconds is %v, want more than 0 and at most %v", errRouteOption, seconds, maxReserve.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// kind returns what kind of request the path takes.
func (o *routeOptions) kind(r *http.Request) (prompt.Kind, error) {
	if path := r.URL.Query().Get("path"); path != "" {
		o.Path = path
	}
	switch {
	case o.Path != "":
	case bool(o.Prompt) && !bool(o.Messages):
		o.Path = "/v1/completions"
	default:
		o.Path = "/v1/chat/completions"
	}
	kind, ok := routed[o.Path]
	if !ok {
		return 0, fmt.Errorf("%w: path is %q, want one that goes to workers, such as /v1/chat/completions", errRouteOption, shorten(o.Path))
	}
	return kind, nil
}

// routeAnswer is what POST /v1/route answers.
type routeAnswer struct {
	ID           string  `json:"id"`
	Worker       string  `json:"worker"` // its URL
	Rank         int16   `json:"rank"`   // -1: the worker as a whole
	CachedTokens int     `json:"cached_tokens"`
	TTFTMillis   float64 `json:"ttft_ms"`
	CostMicros   float64 `json:"cost_micros"`
	Reservation  *held   `json:"reservation,omitempty"`
	Explanation  any     `json:"explanation,omitempty"`
}

// held is a reservation as its owner sees it.
type held struct {
	ID               string  `json:"id"`
	ExpiresInSeconds float64 `json:"expires_in_seconds"`
}

// askRoute answers POST /v1/route: where a request would go, without sending it
// there.
func (g *Gateway) askRoute(w http.ResponseWriter, r *http.Request) {
	// A name of its own: the caller's may be another reservation's.
	x := &exchange{w: w, r: r, id: requestID(http.Header{}), path: r.URL.Path, start: g.deps.Clock.Now(), json: true, whole: true,
		caller: &caller{trust: true, tenant: boundedHint(r.Header, headerTenant)}}
	w.Header().Set(headerRequestID, x.id)
	defer g.release(x)
	answer, err := g.placeOnly(x)
	if err != nil {
		describe(err).write(w, openAI)
		return
	}
	adminJSON(w, answer)
}

// placeOnly reads the question x and answers it.
func (g *Gateway) placeOnly(x *exchange) (*routeAnswer, error) {
	look := new(prompt.Scanner)
	if err := g.readBody(x, look); err != nil {
		return nil, x.typeFault(err)
	}
	var options routeOptions
	if err := json.Unmarshal(x.body.plain, &options); err != nil {
		return nil, fmt.Errorf("%w: %w", errRouteOption, err)
	}
	kind, err := options.kind(x.r)
	if err != nil {
		return nil, err
	}
	last, err := options.lasts()
	if err != nil {
		return nil, err
	}
	if err := g.understand(x, kind, look); err != nil {
		return nil, x.typeFault(err)
	}
	if options.Reserve {
		return g.reserve(x, last)
	}
	if g.deps.Preview == nil {
		return nil, fmt.Errorf("%w: this router can't preview, only reserve", errNoRoute)
	}
	e, err := g.deps.Preview(x.query)
	if err != nil {
		return nil, g.unplaced(x, err)
	}
	answer := &routeAnswer{ID: x.id, Worker: e.Worker, Rank: e.Rank, CachedTokens: e.CachedTokens, TTFTMillis: e.TTFTMillis, Explanation: e}
	for i := range e.Candidates {
		if c := &e.Candidates[i]; c.Chosen {
			answer.CostMicros = c.CostMicros
		}
	}
	return answer, nil
}

// reserve books x's decision.
func (g *Gateway) reserve(x *exchange, last time.Duration) (*routeAnswer, error) {
	d, err := g.reserved.reserve(x.query, len(x.body.plain), last)
	if err != nil {
		return nil, g.unplaced(x, err)
	}
	answer := &routeAnswer{ID: x.id, Worker: d.Worker.Spec.URL, Rank: d.Target.Rank, CachedTokens: d.PredictedCachedTokens,
		TTFTMillis: float64(d.PredictedTTFT.Microseconds()) / 1e3, CostMicros: d.CostMicros, Reservation: &held{d.ID, last.Seconds()}}
	if g.deps.Explain != nil {
		if e, ok := g.deps.Explain(d.ID); ok {
			answer.Explanation = e
		}
	}
	return answer, nil
}

// unplaced says of a decision's error what a client of the data port is told.
func (g *Gateway) unplaced(x *exchange, err error) error {
	switch {
	case errors.Is(err, route.ErrUnknownModel) && !g.expected(x.prompt.Model):
		return fmt.Errorf("%w: no worker serves %q", route.ErrUnknownModel, shorten(x.prompt.Model))
	case errors.Is(err, route.ErrUnknownModel):
		return route.ErrNoWorker // for now
	case errors.Is(err, route.ErrNoWorker) && x.follows:
		return errStateGone
	}
	return err
}

// endReservation answers DELETE /v1/route/{id}.
func (g *Gateway) endReservation(w http.ResponseWriter, r *http.Request) {
	if !g.reserved.release(r.PathValue("id")) {
		describe(errNoReservation).write(w, openAI)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
