package lease_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// An election is counted as one without need where the leader before is there, and
// not where it crashed, left or was cut off.
func TestElectionsWithoutNeed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want uint64
		do   func(p *pond, leader *replica)
	}{
		"crashed": {0, func(p *pond, leader *replica) { p.end(true, leader) }},
		"left":    {0, func(p *pond, leader *replica) { p.end(false, leader) }},
		"cut off": {0, func(p *pond, leader *replica) {
			p.isolate(leader)
			time.Sleep(3 * time.Second)
			p.net.Heal()
		}},
		"none": {1, func(p *pond, leader *replica) {
			if err := leader.Transfer(); err != nil {
				p.t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPond(t, 3)
				defer p.close()
				p.within(20*time.Second, "three vote", func() bool { return agreed(3, p.all...) })
				leader := leaderOf(p.all...)
				c.do(p, leader)
				p.within(5*time.Second, "another leads", func() bool { l := leaderOf(p.all...); return l != nil && l != leader })
				time.Sleep(5 * time.Second)
				var counted uint64
				for _, r := range p.all {
					counted += r.Status().SpuriousElections
				}
				if counted != c.want {
					t.Errorf("%d elections are counted as without need, want %d", counted, c.want)
				}
			})
		})
	}
}
