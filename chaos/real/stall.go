package real

import (
	"context"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// stallEvery is how often it is looked whether timers are late.
const stallEvery = 50 * time.Millisecond

// longestStall looks until ctx ends, and says how late a timer was at most: for
// how long the machine had no time for a run.
func longestStall(ctx context.Context, c clock.Clock) (longest time.Duration) {
	for {
		before := c.Now()
		if c.Sleep(ctx, stallEvery) != nil {
			return longest
		}
		longest = max(longest, c.Now().Sub(before)-stallEvery)
	}
}
