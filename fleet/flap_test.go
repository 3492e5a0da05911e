package fleet_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/emulator"
)

// atOnce is how long a worker that is back may take to be indexed, on a machine
// that is busy: far less than any time for which something is remembered, or
// after which replicas compare what they hold.
const atOnce = 5 * time.Second

// assign makes specs the workers of a replica's fleet.
func (r *replica) assign(specs []engine.Spec) {
	r.t.Helper()
	if err := r.fleet.SetWorkers(specs); err != nil {
		r.t.Fatal(err)
	}
}

// flap takes the first worker out everywhere, lets something happen, and adds it
// again. It returns how long all replicas took to hold what all workers do.
func flap(all []*replica, specs []engine.Spec, meanwhile func()) time.Duration {
	for _, r := range all {
		r.assign(specs[1:])
	}
	for _, r := range all {
		r.await("the worker is gone", func() bool { return len(r.fleet.DescribeIndex().Caches) == len(specs)-1 })
	}
	meanwhile()
	began := time.Now()
	for _, r := range all {
		r.assign(specs)
	}
	for i, r := range all {
		r.awaitTruth(fmt.Sprint("replica ", i, " after the flap"))
	}
	return time.Since(began)
}

// A worker that was not ready for a moment, so that discovery took it out and
// found it again, is indexed again at once on every replica, though the clock of
// its host is an hour behind, and so is that of one replica's. Whether it is the
// same process or a new one, which began an hour before the old one did: lives of
// an engine are told apart, and never ordered by what clocks say.
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
	stored := one.member(0).Cache().HeldTokens

	if took := flap(all, specs, func() {}); took > atOnce {
		t.Errorf("the same process is indexed after %v", took)
	}
	if c := one.member(0).Cache(); c.HeldTokens != stored || c.Resets > 0 {
		t.Errorf("what was known of it, %v, has become %+v", stored, c)
	}
	behind.Store(int64(time.Hour))
	took := flap(all, specs, func() {
		if err := one.workers[0].Restart(emulator.Drained); err != nil {
			t.Fatal(err)
		}
		one.work(2, 2)
	})
	if took > atOnce {
		t.Errorf("a process whose start is an hour before that of the former one is indexed after %v", took)
	}

	// One replica alone loses sight of the worker; nobody has anything new to say.
	for i, r := range all {
		r.assign(specs[1:])
		r.await("the worker is gone", func() bool { return len(r.fleet.DescribeIndex().Caches) == 1 })
		began := time.Now()
		r.assign(specs)
		if r.awaitTruth(fmt.Sprint("replica ", i, " after a flap of its own")); time.Since(began) > atOnce {
			t.Errorf("replica %d: after %v", i, time.Since(began))
		}
	}
}
