package lease

import (
	"container/list"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// Expirer is the leader's watch over idle leases. The state machine knows no
// time: the leader measures it on its own monotonic clock and proposes to
// revoke. A new leader grants every lease its whole time again, so a change of
// leaders may lengthen a lease and never shortens one.
type Expirer struct {
	ttl   time.Duration
	most  int        // leases, past which the longest idle is revoked
	order *list.List // of watched, longest idle first
	of    map[Key]*list.Element
}

// askRevocation is after how long a proposal to revoke, or to fence, counts as lost.
const askRevocation = 10 * time.Second

type watched struct {
	key   Key
	token Token
	used  uint64 // where in the log
	since clock.Instant
	asked clock.Instant // when it was to be revoked; 0: it was not
}

// NewExpirer returns a watch that revokes what was idle for ttl, and the longest
// idle past that many leases.
func NewExpirer(ttl time.Duration, most int) *Expirer {
	return &Expirer{ttl: ttl, most: most, order: list.New(), of: make(map[Key]*list.Element)}
}

// Rearm begins anew, for one that just became the leader, with all the leases
// there are, longest idle first.
func (x *Expirer) Rearm(now clock.Instant, leases []Lease) {
	x.order.Init()
	clear(x.of)
	for _, l := range leases {
		x.used(now, l)
	}
}

// Applied takes what a proposal came to.
func (x *Expirer) Applied(now clock.Instant, events []Event) {
	for _, e := range events {
		switch e.Kind {
		case Granted, Renewed:
			x.used(now, e.Lease)
		case Revoked:
			if at := x.of[e.Lease.Key]; at != nil {
				x.order.Remove(at)
				delete(x.of, e.Lease.Key)
			}
		}
	}
}

func (x *Expirer) used(now clock.Instant, l Lease) {
	w := watched{key: l.Key, token: l.Token, used: l.Used, since: now}
	if at := x.of[l.Key]; at != nil {
		at.Value = w
		x.order.MoveToBack(at)
		return
	}
	x.of[l.Key] = x.order.PushBack(w)
}

// Due returns what to propose now: a revocation for each lease that was idle for
// too long or is one too many, at most that many, unless its next use is in the log
// before. What is not revoked then is due
// again after [askRevocation].
func (x *Expirer) Due(now clock.Instant, limit int) (revoke []Command) {
	over := x.order.Len() - x.most
	for at := x.order.Front(); at != nil && len(revoke) < limit; at = at.Next() {
		w := at.Value.(watched)
		if now.Sub(w.since) < x.ttl && over <= 0 {
			break
		}
		over--
		if w.asked == 0 || now.Sub(w.asked) >= askRevocation {
			w.asked = max(now, 1)
			at.Value = w
			revoke = append(revoke, Command{Kind: Revoke, Key: w.key, Expect: w.token, From: w.used})
		}
	}
	return revoke
}
