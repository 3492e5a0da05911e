package route

import (
	"encoding/binary"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

// Leases are the workflows' places as the replicas agreed on them. Its methods
// don't wait; what it knows may be stale.
type Leases interface {
	// Lease returns a workflow's lease as far as is known here.
	Lease(lease.Key) (l lease.Lease, found, fresh bool)
	// Propose asks for commands to be agreed on, at most once.
	Propose(...lease.Command) bool
	// Fresh reports whether what is known here is all that was agreed.
	Fresh() bool
	// TTL is how long a lease lasts unused.
	TTL() time.Duration
}

const (
	// leaveMicros is by how much another worker must be cheaper at least before a
	// workflow leaves the one that its lease names: moving costs an agreement, and
	// predictions are not better than that.
	leaveMicros = 5000
	// askAgain is how long a proposal may take before it is made again.
	askAgain = 2 * time.Second
	// renewals in a lease's life: one at most in each such part of it.
	renewals = 3
	// maxClaims bounds each of the two generations of claims.
	maxClaims = 50_000
	// maxAsked bounds the commands of one proposal at first contact, and maxLooked
	// the claims that are looked at for it, since decisions wait meanwhile.
	maxAsked, maxLooked = 256, 1024
)

// leasing is a router's part in leases. The router's lock guards it.
type leasing struct {
	of            Leases // nil: none
	recent, older map[lease.Key]*claim
	// alone are the claims that were made while it was not certain what is agreed,
	// maxClaims at most.
	alone map[lease.Key]*claim
}

// claim is where this replica placed a workflow last, a hint while nobody can
// agree on it.
type claim struct {
	holder lease.Holder
	owner  uint64
	used   clock.Instant
	asked  clock.Instant // when the last proposal about it was made
	wanted lease.Holder  // by that
	renew  clock.Instant // when the lease was granted or renewed last, as far as asked here
}

func newLeasing(of Leases) leasing {
	return leasing{of: of, recent: make(map[lease.Key]*claim), alone: make(map[lease.Key]*claim)}
}

// leaseKey names q's workflow; false where it is not the step of one.
func leaseKey(q *Query) (lease.Key, bool) {
	if q.Agent.Workflow == "" {
		return lease.Key{}, false
	}
	b := make([]byte, 0, 128)
	for _, s := range [...]string{q.Prompt.Model, q.Tenant, q.Agent.Workflow} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return lease.Key(xxh3.Hash128(b).Bytes()), true
}

// LeaseRule is what a workflow's lease did to a decision.
type LeaseRule string

// The rules.
const (
	LeaseKept   LeaseRule = "kept"   // its worker was chosen, and would have been
	LeaseStayed LeaseRule = "stayed" // its worker was chosen, though others seemed cheaper by little
	LeaseLeft   LeaseRule = "left"   // another worker is cheaper by more than that
	LeaseGone   LeaseRule = "gone"   // its worker may not serve the request, or has restarted
)

// LeaseState is what was known of the lease of a request's workflow.
type LeaseState struct {
	Target string `json:"target"` // that the workflow lives on
	// Generation and Index are the lease's token; 0 for a claim of this replica
	// alone, which nobody agreed on yet.
	Generation uint64 `json:"generation,omitempty"`
	Index      uint64 `json:"index,omitempty"`
	// Fresh says that no later lease was agreed on, as far as anyone knew 2 s ago.
	Fresh bool      `json:"fresh"`
	Rule  LeaseRule `json:"rule"`
	// LeaveMicros is by how much the cheapest worker would have to be cheaper.
	LeaveMicros float64 `json:"leave_micros"`
}

// held returns where q's workflow lives, by its lease or else by what this
// replica did within a lease's life.
func (l *leasing) held(now clock.Instant, q *Query) (x lease.Lease, fresh, known bool) {
	if l.of == nil {
		return x, false, false
	}
	key, ok := leaseKey(q)
	if !ok {
		return x, false, false
	}
	if x, known, fresh = l.of.Lease(key); known {
		return x, fresh, true
	}
	if c := l.claim(key); c != nil && now.Sub(c.used) < l.of.TTL() {
		return lease.Lease{Key: key, Holder: c.holder}, false, true
	}
	return x, false, false
}

func (l *leasing) claim(key lease.Key) *claim {
	if c := l.recent[key]; c != nil {
		return c
	}
	return l.older[key]
}

// stay lets a workflow leave the worker of its lease only for one that is
// cheaper by more than what the model can know. A lease gives no bonus: whether
// its worker is cheap the cost says.
func (r *Router) stay(now clock.Instant, q *Query, c choice) choice {
	x, fresh, known := r.leases.held(now, q)
	if !known {
		return c
	}
	c.lease = &LeaseState{Target: x.Holder.Target.String(), Generation: x.Token.Gen, Index: x.Token.Index, Fresh: fresh, Rule: LeaseGone, LeaveMicros: leaveMicros}
	if c.tie != nil {
		c.lease.LeaveMicros = max(leaveMicros, c.tie.BandMicros)
	}
	holder, least := -1, 0
	for i := range r.cands {
		if r.cands[i].total < r.cands[least].total {
			least = i
		}
		if r.cands[i].member.Target == x.Holder.Target && sameBoot(r.cands[i].member, x.Holder) {
			holder = i
		}
	}
	switch {
	case holder < 0:
	case holder == c.index:
		c.lease.Rule = LeaseKept
	case r.cands[holder].total-r.cands[least].total <= c.lease.LeaveMicros:
		c.lease.Rule = LeaseStayed
		c.index, c.why = holder, "its workflow's lease"
	default:
		c.lease.Rule = LeaseLeft
	}
	return c
}

// holderOf is a member as a holder; its boot is 0 while it is not known.
func holderOf(m *fleet.Member) lease.Holder {
	id, _ := m.Worker.Identity()
	return lease.Holder{Target: m.Target, Boot: id.Boot}
}

// sameBoot reports whether a lease's holder may still live.
func sameBoot(m *fleet.Member, h lease.Holder) bool {
	now := holderOf(m).Boot
	return now == h.Boot || now == 0 || h.Boot == 0
}

// placed notes where a step of q's workflow went, and proposes what should be
// agreed on: from its second step a workflow has a lease.
func (l *leasing) placed(now clock.Instant, q *Query, m *fleet.Member, again bool) {
	if l.of == nil {
		return
	}
	key, ok := leaseKey(q)
	if !ok {
		return
	}
	c := l.claim(key)
	if c == nil {
		c = &claim{asked: now.Add(-askAgain)}
	} else {
		again = true
	}
	if len(l.recent) >= maxClaims {
		l.older, l.recent = l.recent, make(map[lease.Key]*claim)
	}
	l.recent[key] = c
	c.holder, c.used = holderOf(m), now
	if q.Tenant != "" {
		c.owner = xxh3.HashString(q.Tenant)
	}
	x, found, fresh := l.of.Lease(key)
	// Where the worker's boot is not known here the lease's may be it.
	home := found && x.Holder.Target == c.holder.Target && (x.Holder.Boot == c.holder.Boot || c.holder.Boot == 0)
	waits := now.Sub(c.asked) < askAgain
	switch {
	case home:
		if now.Sub(c.renew) >= l.of.TTL()/renewals && !waits {
			c.renew = now
			c.propose(now, l.of, lease.Command{Kind: lease.Renew, Key: key, Expect: x.Token})
		}
	case !found && !again:
	case !waits || c.wanted != c.holder: // what was asked for is not where it went
		c.renew = now
		c.propose(now, l.of, lease.Command{Kind: lease.Acquire, Key: key, Expect: x.Token, Holder: c.holder, Owner: c.owner})
	}
	if !found && again && !fresh && len(l.alone) < maxClaims {
		l.alone[key] = c
	}
}

// propose notes what is asked for.
func (c *claim) propose(now clock.Instant, of Leases, command lease.Command) {
	c.asked, c.wanted = now, c.holder
	of.Propose(command)
}

// contact proposes, once there is agreement again, the claims that this replica
// made alone: some of them at each call, of which there is one every few
// milliseconds.
func (l *leasing) contact(now clock.Instant) {
	if l.of == nil || len(l.alone) == 0 || !l.of.Fresh() {
		return
	}
	var commands []lease.Command
	looked := 0
	for key, c := range l.alone { // order-free: whose are first in the log wins, and they are all this replica's
		if looked++; looked > maxLooked || len(commands) == maxAsked {
			break
		}
		delete(l.alone, key)
		if _, found, _ := l.of.Lease(key); found || now.Sub(c.used) >= l.of.TTL() {
			continue
		}
		c.asked, c.wanted, c.renew = now, c.holder, now
		commands = append(commands, lease.Command{Kind: lease.Acquire, Key: key, Holder: c.holder, Owner: c.owner})
	}
	if len(commands) > 0 {
		l.of.Propose(commands...)
	}
}
