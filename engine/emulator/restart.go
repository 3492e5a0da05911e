package emulator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rhizome-router/rhizome/kv"
)

// RestartMode says how a worker's life ends.
type RestartMode string

const (
	// Drained lets running requests end and refuses new ones with 503 until
	// the next life begins.
	Drained RestartMode = "drained"
	// Hard cuts all connections.
	Hard RestartMode = "hard"
)

// life is one run of the emulated server process, from a start to the next.
type life struct {
	started time.Time
	name    namer
	metrics *metrics
}

// newLife returns the n-th life, from 0 on.
func (w *Worker) newLife(n uint64) *life {
	l := &life{started: w.cfg.Now(), name: w.dialect.namer(processRoot(w.cfg.Seed, n), w.cfg.BlockTokens)}
	l.metrics = newMetrics(w, l.started)
	return l
}

// Restart ends the worker's life and begins a new one at the same addresses:
// with an empty cache, another root of its block hashes where the engine draws
// one, a new start time, all metrics and Stats at zero, and KV events that
// count from 0, their sockets opened anew and nothing to replay from before. It
// returns when the new life has begun. Errors: the mode is unknown, the worker
// is closed, or a socket could not be opened again; then no events are
// published any more.
func (w *Worker) Restart(mode RestartMode) error { return w.restart(mode, nil) }

// restart leaves the connection caller alone.
func (w *Worker) restart(mode RestartMode, caller net.Conn) error {
	if mode != Drained && mode != Hard {
		return fmt.Errorf("restart emulated worker %s: mode %q is unknown; use %q or %q", w.cfg.Name, mode, Drained, Hard)
	}
	if mode == Hard {
		w.cut(caller) // also what another restart waits for
	}
	w.restarting.Lock()
	defer w.restarting.Unlock()
	empty := w.door.shut()
	defer w.door.open()
	w.server.SetKeepAlivesEnabled(false) // connections end with their requests
	defer w.server.SetKeepAlivesEnabled(true)
	if mode == Hard {
		w.cut(caller) // what came in since
	}
	select {
	case <-empty:
	case <-w.done:
		return errClosed
	}
	m, err := w.cfg.newModel(w.dialect)
	if err != nil {
		return err
	}
	next := w.newLife(w.lives.Add(1))
	failed, err := ask(w, func(o *owner) error {
		w.life.Store(next)
		return o.restart(m, next.metrics)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("restart emulated worker %s: %w", w.cfg.Name, err)
	}
	w.cfg.Log.Info("emulated worker restarted", "worker", w.cfg.Name, "mode", string(mode))
	return nil
}

// cut closes all HTTP connections but one.
func (w *Worker) cut(spared net.Conn) {
	w.connsMu.Lock()
	defer w.connsMu.Unlock()
	for c := range w.open {
		if c != spared {
			c.Close()
		}
	}
}

// connKey is where a request's context has its connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// serveRestart answers when the new life has begun.
func (w *Worker) serveRestart(rw http.ResponseWriter, r *http.Request) {
	caller, _ := r.Context().Value(connKey{}).(net.Conn)
	mode := RestartMode(r.URL.Query().Get("mode"))
	if err := w.restart(mode, caller); err != nil {
		status := http.StatusServiceUnavailable
		if mode != Drained && mode != Hard {
			status = http.StatusBadRequest
		}
		w.writeError(rw, status, "RestartError", err.Error())
		return
	}
	writeJSON(rw, map[string]string{"restarted": string(mode)})
}

// refused answers 503 while the door is shut.
func (w *Worker) refused(rw http.ResponseWriter) {
	rw.Header().Set("Retry-After", "1")
	w.writeError(rw, http.StatusServiceUnavailable, "ServiceUnavailableError", "the emulated worker is restarting")
}

// processRoot is where the block hashes of a worker's n-th process start from,
// where the engine draws one.
func processRoot(seed, n uint64) kv.Key {
	return kv.Root("emulator", fmt.Sprint(seed), fmt.Sprint(n))
}
