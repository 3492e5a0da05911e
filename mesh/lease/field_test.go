package lease_test

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/mesh/lease"
	"github.com/rhizome-router/rhizome/transport"
)

// others returns the replicas that run besides these.
func (p *pond) others(than ...*replica) (all []*replica) {
	for _, r := range p.all {
		if !slices.Contains(than, r) {
			all = append(all, r)
		}
	}
	return all
}

// isolate cuts some off from all others.
func (p *pond) isolate(some ...*replica) { p.net.Partition(addrsOf(some), addrsOf(p.others(some...))) }

func addrsOf(of []*replica) (all []netip.AddrPort) {
	for _, r := range of {
		all = append(all, r.addr)
	}
	return all
}

// deafen lets a replica send and not receive, or with mute receive and not send.
func (p *pond) deafen(r *replica, mute bool) {
	for _, o := range p.others(r) {
		from, to := o.addr, r.addr
		if mute {
			from, to = to, from
		}
		p.net.FaultyFrom(from, to, transport.Faults{Loss: 1})
	}
}

// kept reports whether all agree, with so many voters, and hold workflow 7 at
// worker 42.
func (p *pond) kept(voters int) bool {
	return agreed(voters, p.all...) && !slices.ContainsFunc(p.all, func(r *replica) bool { return p.holder(r, 7) != 42 })
}

// Replicas come back at other addresses: two of three, one after the other with
// nothing left of their former lives, or most of a fleet at once. Nobody is
// needed, and while a replica is there that knows a lease it is kept.
func TestBR07_NewAddressesNeedNobody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replicas, voters int
		upheaval         func(p *pond)
	}{
		"two of three at once": {3, 3, func(p *pond) {
			p.end(true, p.all[0], p.all[1])
			p.start(nil)
			p.start(nil)
		}},
		"one after another": {3, 3, func(p *pond) {
			for range 3 {
				p.end(true, p.all[0])
				p.start(nil)
				p.within(60*time.Second, "three vote in between", func() bool { return p.kept(3) })
			}
		}},
		"from three to one": {3, 1, func(p *pond) { p.end(true, p.all[0], p.all[1]) }},
		"to five and to three": {3, 3, func(p *pond) {
			p.start(nil)
			p.start(nil)
			p.within(30*time.Second, "five vote", func() bool { return p.kept(5) })
			p.end(true, p.all[0], p.all[1])
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPond(t, c.replicas)
				defer p.close()
				p.within(20*time.Second, "all agree", func() bool { return agreed(c.replicas, p.all...) })
				if _, err := p.all[0].Do(t.Context(), acquire(7, 42)); err != nil {
					t.Fatal(err)
				}
				p.within(time.Second, "all know", func() bool { return p.kept(c.replicas) })
				c.upheaval(p)
				if l, known, _ := p.all[0].Lease(lease.Key{7}); !known || l.Holder.Target.Worker != 42 {
					t.Error("without a leader a lease is not even a hint")
				}
				took := p.within(2*time.Minute, "all agree again", func() bool { return p.kept(c.voters) })
				t.Logf("healed after %v", took)
				if _, err := p.all[0].Do(t.Context(), acquire(8, 43)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A leader that is cut off, deaf or mute grants nothing from the moment another
// may, and what it did not know of it can't undo: a token that is not the last
// one is refused.
func TestBR33_AFormerLeaderGrantsNothing(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(p *pond, leader *replica){
		"cut off": func(p *pond, leader *replica) { p.isolate(leader) },
		"deaf":    func(p *pond, leader *replica) { p.deafen(leader, false) },
		"mute":    func(p *pond, leader *replica) { p.deafen(leader, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPond(t, 3)
				defer p.close()
				p.within(20*time.Second, "three vote", func() bool { return agreed(3, p.all...) })
				first, err := p.all[0].Do(t.Context(), acquire(7, 42))
				if err != nil {
					t.Fatal(err)
				}
				former := leaderOf(p.all...)
				rest := p.others(former)

				// Whoever moves workflow 7 knows the grant before; each tries all the time.
				var mu sync.Mutex
				var wg sync.WaitGroup
				stop := make(chan struct{})
				granted := map[*replica][]time.Time{}
				seen := map[lease.Token]bool{first[0].Lease.Token: true}
				for i, r := range p.all {
					wg.Go(func() {
						for at := 0; ; at++ {
							select {
							case <-stop:
								return
							case <-time.After(20 * time.Millisecond):
							}
							move := acquire(7, 100*(i+1)+at%100)
							l, _, _ := r.Lease(lease.Key{7})
							move.Expect = l.Token
							events, err := r.Do(t.Context(), move)
							if err != nil || events[0].Kind != lease.Granted {
								continue
							}
							mu.Lock()
							if seen[events[0].Lease.Token] {
								t.Errorf("%v was granted twice", events[0].Lease.Token)
							}
							seen[events[0].Lease.Token] = true
							granted[r] = append(granted[r], time.Now())
							mu.Unlock()
						}
					})
				}
				time.Sleep(time.Second)
				stale, _, _ := former.Lease(lease.Key{7})
				cutAt := time.Now()
				cut(p, former)
				took := p.within(10*time.Second, "another leads", func() bool { return leaderOf(rest...) != nil })
				p.within(5*time.Second, "the rest grants", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return slices.ContainsFunc(rest, func(r *replica) bool {
						g := granted[r]
						return len(g) > 0 && g[len(g)-1].After(cutAt.Add(took))
					})
				})
				succeeded := time.Now()
				time.Sleep(3 * time.Second)
				mu.Lock()
				if g := granted[former]; len(g) > 0 && g[len(g)-1].After(succeeded) {
					t.Errorf("the former leader's side granted %v after the cut, another one %v after it", g[len(g)-1].Sub(cutAt), succeeded.Sub(cutAt))
				}
				mu.Unlock()
				// One that is only mute hears what the others agree on, and may know it.
				if former.Status().Leads || former.Fresh() && name != "mute" {
					t.Errorf("it still believes to lead or to know: %+v", former.Status())
				}
				if _, _, err := former.Verified(t.Context(), lease.Key{7}); err == nil {
					t.Error("it still reads what others may have changed")
				}
				close(stop)
				wg.Wait()
				p.net.Heal()
				p.within(60*time.Second, "all agree again", func() bool { return agreed(3, p.all...) })
				late := lease.Command{Kind: lease.Revoke, Key: lease.Key{7}, Expect: stale.Token}
				events, err := former.Do(t.Context(), late)
				if err != nil || events[0].Kind != lease.Conflict {
					t.Errorf("a revocation by an old token came to %+v, %v", events, err)
				}
			})
		})
	}
}

// One that was cut off comes back, after seconds again and again and after two
// minutes, by when it has long begun a cluster of its own and is forgotten by the
// others: who leads stays so, no lease changes, and nobody is put out who was
// gone for a second.
func TestBR66_WhoComesBackDisturbsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 4)
		defer p.close()
		p.within(20*time.Second, "three vote", func() bool { return agreed(3, p.all...) })
		if _, err := p.all[0].Do(t.Context(), acquire(7, 42)); err != nil {
			t.Fatal(err)
		}
		p.within(time.Second, "all know", func() bool { return p.kept(3) })
		leader := leaderOf(p.all...)
		term := leader.Status().Term

		held, _, _ := leader.Lease(lease.Key{7})
		stop, done := make(chan struct{}), make(chan struct{})
		failed := 0
		go func() { // load
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
				renew := lease.Command{Kind: lease.Renew, Key: held.Key, Expect: held.Token}
				if events, err := leader.Do(t.Context(), acquire(byte(100+i%100), 1), renew); err != nil || events[1].Kind != lease.Renewed {
					failed++
				}
			}
		}()
		defer func() { // also where the test ends early
			close(stop)
			<-done
			if failed > 0 {
				t.Errorf("%d proposals at the leader failed", failed)
			}
		}()
		out := func(d time.Duration) {
			t.Helper()
			follower := p.others(leader)[0]
			for _, r := range p.others(leader) {
				if r.Status().Server != "" {
					follower = r
				}
			}
			servers := leader.Status().Servers
			p.isolate(follower)
			time.Sleep(d)
			p.net.Heal()
			p.within(30*time.Second, "all agree again", func() bool { return p.kept(3) })
			time.Sleep(5 * time.Second)
			if s := leader.Status(); !s.Leads || s.Term != term {
				t.Fatalf("after %v of absence: %+v, it led in term %d", d, s, term)
			}
			if now := leader.Status().Servers; d <= time.Second && !slices.Equal(servers, now) {
				t.Errorf("after %v of absence %v vote, before %v", d, now, servers)
			}
		}
		out(time.Second)
		out(20 * time.Second)
		if !raceEnabled { // which makes it eight times as slow
			out(20 * time.Second)
			out(forgotten)
		}
	})
}

// forgotten is a little longer than a replica remembers what one that it doesn't
// hear has told; it is the longest of its times.
const forgotten = 130 * time.Second

// A new leader puts nobody out who is late by a second.
func TestBR66_ANewLeaderPutsNobodyOutAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 3)
		defer p.close()
		p.within(20*time.Second, "three vote", func() bool { return agreed(3, p.all...) })
		leader := leaderOf(p.all...)
		late := p.others(leader)[0]
		id := late.Status().Server
		for _, o := range p.others(late) {
			p.net.FaultyFrom(o.addr, late.addr, transport.Faults{Delay: time.Second})
		}
		p.isolate(leader)
		time.Sleep(1500 * time.Millisecond)
		p.net.Heal()
		p.within(30*time.Second, "all agree again", func() bool { return agreed(3, p.all...) })
		if got := late.Status().Server; got != id {
			t.Errorf("the late one is server %q, it was %q", got, id)
		}
	})
}

// A voter crashes, and what starts at its address is another server: it takes the
// dead one's place.
func TestBR07_AnotherAtTheSameAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 3)
		defer p.close()
		p.within(20*time.Second, "three vote", func() bool { return agreed(3, p.all...) })
		if _, err := p.all[0].Do(t.Context(), acquire(7, 42)); err != nil {
			t.Fatal(err)
		}
		gone := p.others(leaderOf(p.all...))[0]
		p.end(true, gone)
		p.startAs("r009", gone.addr, nil)
		p.within(20*time.Second, "three vote again", func() bool { return p.kept(3) })
	})
}
