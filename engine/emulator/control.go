package emulator

import (
	"net/http"
	"strconv"
)

// Slow makes the engine's steps take factor times as long, from the next one on; 1
// is its own speed. A restart ends it. Errors: the factor is not over 0, or the
// worker is closed.
func (w *Worker) Slow(factor float64) error {
	failed, err := ask(w, func(o *owner) error {
		o.catchUp()
		return o.model.SetSlowdown(factor)
	})
	if err != nil {
		return err
	}
	return failed
}

// Mute has all KV events from now on be lost for good: they have numbers, and are
// neither sent nor replayed. A restart ends it. Error: the worker is closed.
func (w *Worker) Mute(on bool) error {
	_, err := ask(w, func(o *owner) struct{} {
		o.catchUp()
		o.feed.faults.mute = on
		return struct{}{}
	})
	return err
}

func (w *Worker) serveSlow(rw http.ResponseWriter, r *http.Request) {
	factor, err := strconv.ParseFloat(r.URL.Query().Get("factor"), 64)
	w.controlled(rw, err, func() error { return w.Slow(factor) })
}

func (w *Worker) serveMute(rw http.ResponseWriter, r *http.Request) {
	on, err := strconv.ParseBool(r.URL.Query().Get("on"))
	w.controlled(rw, err, func() error { return w.Mute(on) })
}

// controlled does what was asked for, unless the question could not be read.
func (w *Worker) controlled(rw http.ResponseWriter, bad error, do func() error) {
	if bad == nil {
		bad = do()
	}
	if bad != nil {
		w.writeError(rw, http.StatusBadRequest, "BadRequestError", bad.Error())
	}
}
