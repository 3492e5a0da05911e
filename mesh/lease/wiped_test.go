package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/mesh/lease"
)

// A voter that lost its memory and comes back under its old name in Raft, as it
// would with names that outlive a process, makes a quorum forget: the histories
// show it. Under a name of its own, which is what a Group gives it, nothing is
// wrong.
func TestAWipedVoterIsFound(t *testing.T) {
	t.Parallel()
	for name, wiped := range map[string]bool{"wiped, under its old name": true, "under a name of its own": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := begin(t, 3, 1)
				defer p.close()
				leader := leaderOf(p.all...)
				rest := p.others(leader)
				voter, behind := rest[0], rest[1]
				at, _ := leader.Stand()
				id := voter.Status().Server
				p.split([]*replica{behind}, []*replica{leader, voter})
				time.Sleep(2 * time.Second) // those two grant, and behind does not know
				p.remove(voter)
				var back *replica
				if wiped {
					back = p.startAs(voter.name, voter.addr, nil)
				} else {
					back = p.start(nil)
				}
				p.moved()
				p.heal()
				p.split([]*replica{leader}, []*replica{behind, back})
				if wiped {
					p.within(20*time.Second, "it is asked to vote", func() bool { return behind.Invite(back.name, at.Cluster) })
					p.within(time.Second, "it votes", func() bool { return back.Status().Server == id })
				}
				p.within(60*time.Second, "one of the two leads", func() bool { return leaderOf(behind, back) != nil })
				time.Sleep(3 * time.Second)
				p.heal()
				p.quiet()
				if err := p.judge(); (err != nil) != wiped {
					t.Errorf("%d operations in %d clusters, judged: %v", len(p.ops), len(p.pasts), err)
				}
			})
		})
	}
}

// What the judge of histories takes and refuses.
func TestTheJudgeOfHistories(t *testing.T) {
	t.Parallel()
	const old, anew = lease.Cluster(1), lease.Cluster(2)
	token := func(gen, index uint64) lease.Token { return lease.Token{Gen: gen, Index: index} }
	grant := func(in lease.Cluster, expect lease.Token, gives held, call int64) op {
		return op{in: asked{opAcquire, 1, expect, gives}, out: told{done: true, holds: gives}, at: lease.At{Cluster: in, Index: gives.token.Index}, call: call, back: call + 1}
	}
	read := func(in lease.Cluster, index uint64, holds held, call int64) op {
		return op{in: asked{kind: opRead, key: 1}, out: told{holds: holds}, at: lease.At{Cluster: in, Index: index}, call: call, back: call + 1}
	}
	revoke := func(in lease.Cluster, index uint64, expect lease.Token, call int64) op {
		return op{in: asked{kind: opRevoke, key: 1, expect: expect}, out: told{done: true}, at: lease.At{Cluster: in, Index: index}, call: call, back: call + 1}
	}
	none, a, b, c := held{}, held{11, token(1, 3)}, held{22, token(1, 7)}, held{33, token(2, 20)}
	lost := op{in: asked{opAcquire, 1, a.token, held{holder: 22}}, out: told{unknown: true}, call: 5, back: 6}
	brought := held{22, token(2, 30)}
	for name, x := range map[string]struct {
		ops  []op
		good bool
	}{
		"a move":                                 {[]op{grant(old, none.token, a, 0), grant(old, a.token, b, 10)}, true},
		"a lease that nobody asked for":          {[]op{read(old, 1, a, 0)}, false},
		"two holders at once":                    {[]op{grant(old, none.token, a, 0), grant(old, none.token, b, 10)}, false},
		"a stale read":                           {[]op{grant(old, none.token, a, 0), grant(old, a.token, b, 10), read(old, 8, a, 20)}, false},
		"a grant that nobody knew":               {[]op{grant(old, none.token, a, 0), lost, read(old, 8, b, 20)}, true},
		"carried into the new cluster":           {[]op{grant(old, none.token, a, 0), read(anew, 12, a, 20), grant(anew, a.token, c, 30)}, true},
		"not carried, though it was in the copy": {[]op{grant(old, none.token, a, 0), read(anew, 12, none, 20)}, false},
		"granted after the copy, so lost":        {[]op{grant(old, none.token, a, 0), grant(old, a.token, b, 10), read(anew, 12, a, 20)}, true},
		"granted after the copy, and yet there":  {[]op{grant(old, none.token, a, 0), grant(old, a.token, b, 10), read(anew, 12, b, 20)}, false},
		"revoked before the copy, and revived":   {[]op{grant(old, none.token, a, 0), revoke(old, 4, a.token, 5), read(anew, 12, a, 20)}, false},
		"brought when the old one ended":         {[]op{grant(old, none.token, a, 0), grant(old, a.token, b, 10), revoke(anew, 12, a.token, 20), read(anew, 31, brought, 30)}, true},
		"brought twice":                          {[]op{grant(old, none.token, a, 0), grant(old, a.token, b, 10), revoke(anew, 12, a.token, 20), read(anew, 31, brought, 30), revoke(anew, 32, brought.token, 40), read(anew, 33, brought, 50)}, false},
		"brought, though it was in the copy":     {[]op{grant(old, none.token, a, 0), revoke(anew, 12, a.token, 20), read(anew, 31, held{11, token(2, 30)}, 30)}, false},
	} {
		h := &history{ops: x.ops, pasts: map[lease.Cluster][]lease.Begin{
			old: {{Gen: 1, Cluster: old}}, anew: {{Gen: 1, Cluster: old}, {Gen: 2, Cluster: anew, From: 5}},
		}}
		if err := h.judge(); (err == nil) != x.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
