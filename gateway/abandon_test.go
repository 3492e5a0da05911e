package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// deadlineWriter keeps the last read deadline; begun runs within the first call.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	called atomic.Bool
	begun  func()

	mu   sync.Mutex
	last time.Time
}

func (w *deadlineWriter) SetReadDeadline(t time.Time) error {
	if !w.called.Swap(true) {
		w.begun()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = t
	return nil
}

// A Read that is about to give the client time to go on must not undo that the
// upload is given up meanwhile.
func TestAbandonIsNotUndoneByAReadThatBegins(t *testing.T) {
	w, done := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}, make(chan struct{})
	r := &rest{body: strings.NewReader("more"), control: http.NewResponseController(w), idle: time.Hour, left: 10}
	w.begun = func() {
		go func() {
			defer close(done)
			r.abandon(0)
		}()
		select {
		case <-done: // before the deadline of the Read is set
		case <-time.After(10 * time.Millisecond): // it waits for that
		}
	}
	if _, err := r.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	<-done
	if left := time.Until(w.last); left > time.Minute {
		t.Errorf("what waits for the client may wait for %v more", left)
	}
}
