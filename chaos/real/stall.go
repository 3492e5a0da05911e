package real

import (
	"context"
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// stalled says that the machine had no time for a run, so that what was seen of
// it says nothing: a replica that is given no processor looks like one that died.
type stalled struct {
	at, late time.Duration
}

func (e *stalled) Error() string {
	return fmt.Sprintf("this machine was too busy: at %v a timer was %v late, of at most %v; give it less other work", e.at, e.late, mayStall)
}

const (
	// stallEvery is how often it is looked whether timers are late, and mayStall how
	// late one may be: what the shortest bounds have to spare.
	stallEvery = 50 * time.Millisecond
	mayStall   = 500 * time.Millisecond
	// stallTries is how often a run is tried on a machine that had no time for it.
	stallTries = 3
)

// awaitStall returns as soon as a timer was too late, or nil when ctx ends.
func awaitStall(ctx context.Context, c clock.Clock, now func() time.Duration) error {
	for {
		before := c.Now()
		if c.Sleep(ctx, stallEvery) != nil {
			return nil
		}
		if late := c.Now().Sub(before) - stallEvery; late > mayStall {
			return &stalled{now(), late}
		}
	}
}
