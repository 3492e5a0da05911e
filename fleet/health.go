package fleet

import (
	"context"
	"errors"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
)

// Grade returns how welcome a new request is at this member now, by its
// worker's circuit and by whether the worker answers.
func (m *Member) Grade(now clock.Instant) Grade {
	g := m.Circuit.Grade(now)
	if g < Suspect && !m.Healthy() {
		return Suspect
	}
	return g
}

// lives judges a probe. One that timed out says little while answers to
// requests keep coming: a worker that is busy computing may have no time for
// its probes. heard is what Worker.Heard told before the probe.
func lives(w *engine.Worker, heard uint64, err error) bool {
	return err == nil || errors.Is(err, context.DeadlineExceeded) && w.Heard() > heard
}
