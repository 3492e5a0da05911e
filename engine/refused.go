package engine

import (
	"errors"
	"net/http"
)

// Refused reports whether an error of Render means that the worker looked at
// the request and does not do it, so that asking again is in vain: its template
// takes no such messages, or it tells no token ids at all.
func Refused(err error) bool {
	if errors.Is(err, ErrNoRender) {
		return true
	}
	status, ok := errors.AsType[*statusError](err)
	return ok && status.code >= 400 && status.code < 500 && status.code != http.StatusRequestTimeout &&
		status.code != http.StatusTooManyRequests && status.code != http.StatusUnauthorized && status.code != http.StatusForbidden
}
