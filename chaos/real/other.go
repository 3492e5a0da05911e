//go:build !linux

package real

import (
	"context"
	"errors"
	"log/slog"

	"github.com/rhizome-router/rhizome/chaos"
)

// Ground plays scenarios with real processes; it needs Linux.
type Ground struct {
	Binary, Logs string
	Log          *slog.Logger
}

var errNotLinux = errors.New("the real ground can't be used here: network namespaces need Linux")

// Place implements [chaos.Ground].
func (*Ground) Place() chaos.Place { return chaos.Real }

// Ready implements [chaos.Ground].
func (*Ground) Ready() error { return errNotLinux }

// Run implements [chaos.Ground].
func (*Ground) Run(context.Context, *chaos.Scenario, uint64) (*chaos.History, error) {
	return nil, errNotLinux
}

// Sweep has nothing to do.
func Sweep() (removed int, err error) { return 0, nil }
