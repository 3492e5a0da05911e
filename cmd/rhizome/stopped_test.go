package main

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/mesh/lease"
	"github.com/rhizome-router/rhizome/route"
)

// The leader's process is stopped for longer than a lease lives, and goes on. The
// others have ended the lease meanwhile and granted another; the one that wakes
// never takes the old one for more than a hint, grants nothing, and follows.
func TestBR33_AStoppedLeaderTakesNoOldLeaseForCertain(t *testing.T) {
	t.Setenv("RHIZOME_GATEWAY_TRUST_HINTS", "true")
	t.Setenv("RHIZOME_LEASES_TTL", "5s")
	c := newCluster(t, 0, 3)
	for range 3 {
		s, _ := c.startProcess()
		c.replicas = append(c.replicas, s)
	}
	c.awaitMesh()
	// hold has a workflow placed until all of some replicas know its lease.
	hold := func(at *served, all ...*served) (l lease.Held) {
		await(t, "the workflow has a lease", func() bool {
			if _, err := at.step("w", promptOf(1, 0)); err != nil {
				t.Fatal(err)
			}
			for i, s := range all {
				d := s.leases(t)
				if !d.Fresh || d.Leases != 1 || i > 0 && d.Held[0] != l {
					return false
				}
				l = d.Held[0]
			}
			return true
		})
		return l
	}
	agreed := func() bool {
		if _, err := c.replicas[0].step("w", promptOf(1, 0)); err != nil { // or the lease ends
			t.Fatal(err)
		}
		return c.agreed(1)
	}
	await(t, "three vote", agreed)
	old := hold(c.replicas[0], c.replicas...)
	i := -1
	await(t, "one leads", func() bool {
		i = slices.IndexFunc(c.replicas, func(s *served) bool { return s.leases(t).Leads })
		return i >= 0
	})
	leader, rest := c.replicas[i], slices.Delete(slices.Clone(c.replicas), i, i+1)
	sendTo(t, leader, syscall.SIGSTOP)
	stopped := time.Now()
	var state []string
	defer func() {
		if t.Failed() {
			t.Logf("the others were %v", state)
		}
	}()
	t.Cleanup(func() { _ = leader.process.Signal(syscall.SIGCONT) }) // it may have ended
	await(t, "another leads, and the lease has ended", func() bool {
		state = state[:0]
		return slices.ContainsFunc(rest, func(s *served) bool {
			d := s.leases(t)
			state = append(state, fmt.Sprintf("%+v", d.Status))
			return d.Leads && d.Leases == 0
		})
	})
	anew := hold(rest[0], rest...)
	if !token(old).Less(token(anew)) {
		t.Errorf("lease %+v came after %+v", anew, old)
	}
	sendTo(t, leader, syscall.SIGCONT)
	t.Logf("stopped for %v", time.Since(stopped).Round(time.Millisecond))
	sure := 0
	await(t, "it knows the new lease", func() bool {
		_, id, err := leader.stepOf("w", promptOf(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		var decision route.Explanation
		leader.get(t, "/explain/"+id, &decision)
		l := decision.Lease
		if l == nil || !l.Fresh {
			return false
		}
		if at := (lease.Token{Gen: l.Generation, Index: l.Index}); at.Less(token(anew)) {
			t.Fatalf("it takes %v for certain, though %v was granted", at, token(anew))
		}
		sure++
		return sure > 20
	})
	await(t, "all agree", agreed)
	now := c.replicas[0].leases(t).Held[0]
	if token(now).Less(token(anew)) {
		t.Errorf("the lease is %+v again, it was %+v", now, anew)
	}
}

func token(h lease.Held) lease.Token { return lease.Token{Gen: h.Gen, Index: h.Index} }

func sendTo(t *testing.T, s *served, what syscall.Signal) {
	t.Helper()
	if err := s.process.Signal(what); err != nil {
		t.Fatal(fmt.Errorf("%v to a replica: %w", what, err))
	}
}
