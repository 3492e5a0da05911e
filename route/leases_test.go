package route

import (
	"fmt"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

// agreement is what replicas agree on, without the replicas: what is proposed is
// agreed on at once, or lost while it is not fresh.
type agreement struct {
	*lease.State
	fresh    bool
	proposed []lease.Command
}

func (a *agreement) Lease(k lease.Key) (lease.Lease, bool, bool) {
	l, ok := a.State.Lease(k)
	return l, ok, a.fresh
}

func (a *agreement) Propose(commands ...lease.Command) bool {
	if a.fresh {
		a.proposed = append(a.proposed, commands...)
		a.State.Take(a.Index()+1, &lease.Proposal{Commands: commands})
	}
	return true
}

func (a *agreement) Fresh() bool      { return a.fresh }
func (*agreement) TTL() time.Duration { return time.Minute }

func newAgreeing(t *testing.T, workers int) (*house, *agreement) {
	h := newHouse(t, Rhizome, workers)
	a := &agreement{State: lease.NewState(), fresh: true}
	deps := h.deps
	deps.Leases = a
	h.Router = New(h.cfg, deps)
	return h, a
}

// step places a workflow's next step with a prompt that nobody holds, and ends
// it.
func (h *house) step(t *testing.T, workflow string, n int) *Decision {
	t.Helper()
	d, err := h.Decide(Query{ID: "step", Prompt: tokens(t, 0, 16, n), Agent: Agent{Workflow: workflow, StepsToExecution: -1}})
	if err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(10 * time.Millisecond)
	h.finish(d, 10*time.Millisecond)
	return d
}

func (h *house) lastLease(t *testing.T) *LeaseState {
	t.Helper()
	e, ok := h.Explain("step")
	if !ok {
		t.Fatal("not explained")
	}
	return e.Lease
}

// A workflow has a lease from its second step, which is renewed three times in
// its life, and moves with the workflow.
func TestLeasesBeginWithTheSecondStep(t *testing.T) {
	h, a := newAgreeing(t, 4)
	first := h.step(t, "w", 1)
	if a.Len() != 0 {
		t.Fatal("a lease for one step")
	}
	second := h.step(t, "w", 2)
	if a.Len() != 1 || second.Target != first.Target {
		t.Fatalf("%d leases after two steps, on %v and %v", a.Len(), first.Target, second.Target)
	}
	for n := range 50 { // 30 s
		h.clock.Advance(590 * time.Millisecond)
		if d := h.step(t, "w", 3+n); d.Target != first.Target {
			t.Fatalf("moved to %v", d.Target)
		}
	}
	renewed := 0
	for _, c := range a.proposed {
		if c.Kind == lease.Renew {
			renewed++
		}
	}
	if renewed != 1 || len(a.proposed) != 2 {
		t.Errorf("%d renewals in half a life, %d proposals in all", renewed, len(a.proposed))
	}
	if l := h.lastLease(t); l == nil || l.Rule != LeaseKept || !l.Fresh || l.Index == 0 {
		t.Errorf("explained as %+v", l)
	}
	// Its worker drains: the workflow leaves at once, with its lease.
	for _, m := range h.members {
		if m.Target == first.Target {
			m.SetHealthy(false)
		}
	}
	h.clock.Advance(askAgain)
	moved := h.step(t, "w", 100)
	if moved.Target == first.Target {
		t.Fatal("it stays where nobody is")
	}
	if l := h.lastLease(t); l.Rule != LeaseGone {
		t.Errorf("explained as %+v", l)
	}
	for key := range h.leases.recent { // order-free: there is one
		if l, ok := a.State.Lease(key); !ok || l.Holder.Target != moved.Target {
			t.Errorf("the lease is %+v, want it on %v", l, moved.Target)
		}
	}
}

// A lease made through another replica is stayed with, unless another worker is
// clearly cheaper; a lease on a former life of its worker is void.
func TestALeaseIsLeftForMuchOnly(t *testing.T) {
	h, a := newAgreeing(t, 4)
	q := Query{Prompt: tokens(t, 0, 16, 0), Agent: Agent{Workflow: "w"}}
	key, _ := leaseKey(&q)
	holder := h.members[2]
	a.Propose(lease.Command{Kind: lease.Acquire, Key: key, Holder: lease.Holder{Target: holder.Target}})
	for n := range 8 {
		if d := h.step(t, "w", n); d.Target != holder.Target {
			t.Fatalf("step %d went to %v, the lease names %v", n, d.Target, holder.Target)
		}
	}
	// Others hold a long prompt: leaving is worth it, and rewrites the lease.
	long := tokens(t, 40_000, 16, 1)
	h.hold(h.members[0], long, 0, 2500, kv.HBM)
	h.clock.Advance(askAgain)
	d, err := h.Decide(Query{ID: "step", Prompt: long, Agent: Agent{Workflow: "w", StepsToExecution: -1}})
	if err != nil {
		t.Fatal(err)
	}
	h.finish(d, time.Millisecond)
	if l, _, _ := a.Lease(key); d.Target != h.members[0].Target || l.Holder.Target != d.Target {
		t.Errorf("went to %v with the lease on %v", d.Target, l.Holder.Target)
	}
	if l := h.lastLease(t); l.Rule != LeaseLeft {
		t.Errorf("explained as %+v", l)
	}
}

// While nobody agrees on anything routing goes on by this replica's own claims,
// and they are proposed at first contact.
func TestClaimsWithoutAgreement(t *testing.T) {
	h, a := newAgreeing(t, 4)
	a.fresh = false
	first := h.step(t, "w", 1)
	for n := range 4 {
		if d := h.step(t, "w", 2+n); d.Target != first.Target {
			t.Fatalf("moved to %v", d.Target)
		}
	}
	if l := h.lastLease(t); l == nil || l.Fresh || l.Index != 0 || l.Rule != LeaseKept {
		t.Errorf("explained as %+v", l)
	}
	h.mu.Lock()
	h.leases.contact(h.clock.Now())
	h.mu.Unlock()
	if a.Len() != 0 {
		t.Fatal("agreed by nobody")
	}
	a.fresh = true
	h.mu.Lock()
	h.leases.contact(h.clock.Now())
	h.mu.Unlock()
	if a.Len() != 1 || a.Leases()[0].Holder.Target != first.Target {
		t.Errorf("after contact: %+v", a.Leases())
	}
}

// A workflow that must leave its worker right after it got a lease there has a
// new one at once, not when the proposal before it has had its time.
func TestALeaseOnADeadWorkerIsRewrittenAtOnce(t *testing.T) {
	h, a := newAgreeing(t, 4)
	first := h.step(t, "w", 1)
	h.step(t, "w", 2)
	for _, m := range h.members {
		if m.Target == first.Target {
			m.SetHealthy(false)
		}
	}
	moved := h.step(t, "w", 3)
	if l := a.Leases(); moved.Target == first.Target || len(l) != 1 || l[0].Holder.Target != moved.Target {
		t.Errorf("went from %v to %v, with the leases %+v", first.Target, moved.Target, l)
	}
}

// A replica that does not know its worker's boot leaves a lease that names one as
// it is.
func TestAnUnknownBootRewritesNoLease(t *testing.T) {
	h, a := newAgreeing(t, 4)
	q := Query{Prompt: tokens(t, 0, 16, 0), Agent: Agent{Workflow: "w"}}
	key, _ := leaseKey(&q)
	holder := lease.Holder{Target: h.members[1].Target, Boot: 7}
	a.Propose(lease.Command{Kind: lease.Acquire, Key: key, Holder: holder})
	for n := range 4 {
		h.clock.Advance(askAgain)
		h.step(t, "w", n)
	}
	if l, _, _ := a.Lease(key); l.Holder != holder {
		t.Errorf("the lease went from %+v to %+v", holder, l.Holder)
	}
}

// What this replica did longer ago than a lease lives is no claim.
func TestClaimsEnd(t *testing.T) {
	h, a := newAgreeing(t, 4)
	a.fresh = false
	h.step(t, "w", 1)
	h.clock.Advance(a.TTL() - time.Second)
	h.step(t, "w", 2)
	if h.lastLease(t) == nil {
		t.Error("no claim within its life")
	}
	h.clock.Advance(a.TTL())
	h.step(t, "w", 3)
	if l := h.lastLease(t); l != nil {
		t.Errorf("a claim that ended: %+v", l)
	}
}

// First contact asks for workflows of more than one step, and for as many at a
// time as hold up no decision.
func TestContactIsBounded(t *testing.T) {
	const workflows = maxAsked + 10
	h, a := newAgreeing(t, 2)
	a.fresh = false
	for w := range workflows {
		h.step(t, fmt.Sprint("two steps ", w), 1)
		h.step(t, fmt.Sprint("two steps ", w), 2)
		if w%10 == 0 {
			h.step(t, fmt.Sprint("one step ", w), 1)
		}
	}
	a.fresh = true
	for _, want := range []int{maxAsked, workflows, workflows} {
		h.mu.Lock()
		h.leases.contact(h.clock.Now())
		h.mu.Unlock()
		if a.Len() != want {
			t.Errorf("%d leases, want %d", a.Len(), want)
		}
	}
}

// BenchmarkDecideLeases: what leases cost a decision, and that it costs no more
// while nobody leads.
func BenchmarkDecideLeases(b *testing.B) {
	for _, c := range []struct {
		name          string
		leases, fresh bool
	}{{"none", false, false}, {"agreed", true, true}, {"no-leader", true, false}} {
		b.Run(c.name, func(b *testing.B) {
			h := newHouse(b, Rhizome, 8)
			if c.leases {
				deps := h.deps
				deps.Leases = &agreement{State: lease.NewState(), fresh: c.fresh}
				h.Router = New(h.cfg, deps)
			}
			p := tokens(b, 1600, 160, 1)
			for b.Loop() {
				d, err := h.Decide(Query{ID: "x", Prompt: p, Agent: Agent{Workflow: "w", StepsToExecution: -1}})
				if err != nil {
					b.Fatal(err)
				}
				h.Done(d, Outcome{Result: Cancelled})
			}
		})
	}
}
