package lease_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestManyComeAndGo: one replica becomes many, five of which vote, and all but
// two of them go at once.
func TestManyComeAndGo(t *testing.T) {
	t.Parallel()
	many := 50
	if raceEnabled {
		many = 12
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 1)
		defer p.close()
		p.within(10*time.Second, "one agrees with itself", func() bool { return agreed(1, p.all...) })
		if _, err := p.all[0].Do(t.Context(), acquire(7, 42)); err != nil {
			t.Fatal(err)
		}
		for len(p.all) < many {
			p.start(nil)
		}
		kept := func(voters int) func() bool {
			return func() bool {
				return agreed(voters, p.all...) && !slices.ContainsFunc(p.all, func(r *replica) bool { return p.holder(r, 7) != 42 })
			}
		}
		t.Logf("five of %d vote after %v", many, p.within(60*time.Second, "five vote", kept(5)))
		p.end(true, slices.Clone(p.all[:many-2])...)
		t.Logf("one of two votes after %v", p.within(180*time.Second, "one agrees with itself again", kept(1)))
	})
}
