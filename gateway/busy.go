package gateway

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/rhizome-router/rhizome/route"
)

// errTurnedAway marks an attempt whose worker said that it has no room now and
// when to come again: it has begun nothing, so another worker may be asked. The
// client has seen nothing of the answer, which is kept.
var errTurnedAway = errors.New("the worker has no room now")

// maxKeptBytes bounds the body of an answer that is kept.
const maxKeptBytes = 16 << 10

// keptAnswer is a worker's refusal, to be given to the client when no other
// worker takes the request.
type keptAnswer struct {
	attempt *attempt
	resp    *http.Response
	body    []byte
}

// turnedAway keeps resp if it is such a refusal: 429 or 503 with Retry-After.
// What is too long to be kept, or does not say how long it is, is not: it is
// relayed.
func (a *attempt) turnedAway(resp *http.Response) error {
	if result(resp.StatusCode) != route.Busy || resp.Header.Get("Retry-After") == "" || resp.ContentLength < 0 || resp.ContentLength > maxKeptBytes {
		return nil
	}
	a.limit(a.g.cfg.IdleTimeout)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		if stop := a.stopped(); stop != nil {
			return stop
		}
		a.g.countFailure("broken")
		return errBrokenStream
	}
	a.outcome.Result, a.outcome.RetryAfter = route.Busy, retryAfter(resp.Header, time.Now())
	a.x.kept = &keptAnswer{a, resp, body}
	return errTurnedAway
}

// give ends an exchange whose attempts failed: with a worker's own refusal if
// there is one, which says more than err.
func (g *Gateway) give(x *exchange, err error) error {
	k := x.kept
	if k == nil || !errors.Is(err, errTurnedAway) && !errors.Is(err, errRetryable) {
		return err
	}
	k.attempt.commit(k.resp)
	if g.send(x, k.body, true) != nil {
		return errClientGone
	}
	return nil
}
