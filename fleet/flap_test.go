package fleet_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// assign makes specs the workers of a replica's fleet.
func (r *replica) assign(specs []engine.Spec) {
	r.t.Helper()
	if err := r.fleet.SetWorkers(specs); err != nil {
		r.t.Fatal(err)
	}
}

// flap takes the first worker out of some replicas' fleets, lets something happen,
// adds it again and waits until all hold what all workers do.
func flap(all []*replica, specs []engine.Spec, meanwhile func()) {
	for _, r := range all {
		r.assign(specs[1:])
	}
	for _, r := range all {
		r.await("the worker is gone", func() bool { return len(r.fleet.DescribeIndex().Caches) == len(specs)-1 })
	}
	meanwhile()
	for _, r := range all {
		r.assign(specs)
	}
	for i, r := range all {
		r.awaitTruth(fmt.Sprint("replica ", i, " of those where it was gone"))
	}
}

// boot is the life of the first worker that counts, as a replica knows it.
func (r *replica) boot() (boot kv.Boot) {
	r.node.Do(func(_ clock.Instant, c *core.Core) { boot, _ = c.Boot(r.member(0).Target) })
	return boot
}

// A worker that was not ready for a moment, so that discovery took it out and
// found it again, is indexed again on every replica, though the clock of its host
// is an hour behind, and so is that of one replica's: if it is the same process,
// as the life that it had, of which nothing need be read again; and if it is a new
// one, though it began an hour before the old one did. Lives of an engine are told
// apart, and never ordered by what clocks say.
func TestWorkerIsBackThoughItsClockIsBehind(t *testing.T) {
	var behind atomic.Int64
	now := func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }
	g, specs := newWorkers(t, 2, func(c *emulator.Config) { c.Now = now })
	all := newReplicasOf(t, 3, g, specs, func() time.Time { return time.Now().Add(-time.Hour) })
	one := all[0]
	one.await("each worker read by one replica", func() bool {
		return all[0].reading()+all[1].reading()+all[2].reading() == len(specs)
	})
	one.work(5, 1)
	for i, r := range all {
		r.awaitTruth(fmt.Sprint("replica ", i))
	}
	same := func(boot kv.Boot) {
		t.Helper()
		for i, r := range all {
			if c := r.member(0).Cache(); r.boot() != boot || c.Resets > 0 {
				t.Errorf("replica %d takes the process that was there for another: %x was %x, %d resets", i, r.boot(), boot, c.Resets)
			}
		}
	}
	first := one.boot()
	flap(all, specs, func() {})
	same(first)

	behind.Store(int64(time.Hour))
	flap(all, specs, func() {
		if err := one.workers[0].Restart(emulator.Drained); err != nil {
			t.Fatal(err)
		}
		one.work(2, 2)
	})
	second := one.boot()
	if second == first {
		t.Error("another process passes for the one before it")
	}

	// One replica alone loses sight of the worker; nobody has anything new to say.
	for _, r := range all {
		flap([]*replica{r}, specs, func() {})
	}
	same(second)
}
