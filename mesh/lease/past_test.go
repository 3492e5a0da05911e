package lease

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// fork is a cluster's state and what it may be told.
type fork struct {
	*State
	cluster Cluster
}

func (f *fork) log(c ...Command) []Event { return f.Take(f.index+1, &Proposal{Commands: c}) }

// change does something to a workflow; no two grants have one holder.
func (f *fork) change(t *rapid.T, holder *kv.WorkerID) {
	*holder++
	c := Command{Kind: rapid.SampledFrom([]Kind{Acquire, Acquire, Renew, Revoke}).Draw(t, "kind"), Key: Key{rapid.ByteRange(0, 2).Draw(t, "key")},
		Holder: Holder{Target: kv.Target{Worker: *holder}}}
	if l, ok := f.Lease(c.Key); ok {
		c.Expect = l.Token
	}
	f.log(c)
}

// holders are the leases there are, by their holders.
func (f *fork) holders() map[Key]kv.WorkerID {
	all := make(map[Key]kv.WorkerID)
	for k, l := range f.leases { // order-free: a copy
		all[k] = l.Holder.Target.Worker
	}
	return all
}

// began is a cluster that begins from a copy, as a Group makes it.
func (f *fork) began(cluster Cluster, gen uint64) *fork {
	s, err := Restore(f.Append(nil))
	if err != nil {
		panic(err)
	}
	n := &fork{s, cluster}
	n.log(Command{Kind: Generation, Gen: gen, Cluster: cluster, From: f.index})
	return n
}

// legend is what is brought of it, as it is now.
func (f *fork) legend() *legend {
	old := newLegend(f.cluster, f.State)
	old.sort()
	return old
}

// bring has all of a legend proposed and agreed on.
func (f *fork) bring(old *legend) {
	for now := clock.Instant(1); ; now = now.Add(bringAgain) {
		commands, over := old.next(now, f.State)
		if over {
			return
		}
		f.log(commands...)
	}
}

// Of a cluster that ends for another what it granted since they parted is brought
// where a workflow has no lease, and nothing else changes: what was ended on the
// other side meanwhile stays so. Whoever comes with the same or an older copy
// later changes nothing at all, whatever was ended since.
func TestBroughtLeasesReviveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var holder kv.WorkerID
		root := &fork{NewState(), 1}
		root.log(Command{Kind: Generation, Gen: 1, Cluster: 1})
		change := func(f *fork) {
			for range rapid.IntRange(0, 12).Draw(t, "changes") {
				f.change(t, &holder)
			}
		}
		change(root)
		before := root.holders()
		a, b := root, root.began(2, 2)
		if rapid.Bool().Draw(t, "both begin anew") {
			a = root.began(3, 2)
		}
		if rapid.Bool().Draw(t, "the other way round") {
			a, b = b, a
		}
		change(a)
		change(b)
		old := b.legend()
		change(b)
		last := b.legend()
		want := b.holders()
		maps.DeleteFunc(want, func(k Key, h kv.WorkerID) bool { return before[k] == h })
		maps.Copy(want, a.holders())
		a.bring(last)
		if got := a.holders(); !maps.Equal(got, want) {
			t.Fatalf("with what was brought it has %v, want %v", got, want)
		}
		change(a)
		left := a.Digest()
		a.bring(old)
		a.bring(b.legend())
		if a.Digest() != left {
			t.Fatalf("brought again it has %v", a.Leases())
		}
	})
}

// The ways by which a lease may come back that was revoked in the cluster that
// stays, or in one that ended for it.
func TestRevokedLeasesStayRevoked(t *testing.T) {
	grant, revoke := Command{Kind: Acquire, Key: Key{1}}, func(f *fork) {
		l, _ := f.Lease(Key{1})
		f.log(Command{Kind: Revoke, Key: Key{1}, Expect: l.Token})
	}
	start := func() *fork {
		f := &fork{NewState(), 1}
		f.log(Command{Kind: Generation, Gen: 1, Cluster: 1})
		return f
	}
	for name, story := range map[string]func() *fork{
		"one that ends for two, which meet": func() *fork {
			a := start()
			b, c := a.began(2, 2), a.began(3, 2)
			a.log(grant)
			b.bring(a.legend())
			c.bring(a.legend())
			revoke(b)
			b.bring(c.legend())
			return b
		},
		"revoked by one that ends, whose own past comes late": func() *fork {
			a := start()
			b := a.began(2, 2)
			a.log(grant)
			c := a.began(3, 2)
			revoke(c)
			b.bring(c.legend())
			b.bring(a.legend())
			return b
		},
		"revoked by one that it was brought to, which ends": func() *fork {
			a := start()
			b, c := a.began(2, 2), a.began(3, 2)
			a.log(grant)
			c.bring(a.legend())
			revoke(c)
			b.bring(c.legend())
			b.bring(a.legend())
			return b
		},
		"a copy saved in between": func() *fork {
			a := start()
			b, c := a.began(2, 2), a.began(3, 2)
			a.log(grant)
			c.bring(a.legend())
			d := c.began(4, 3)
			b.bring(c.legend())
			revoke(b)
			b.bring(d.legend())
			return b
		},
	} {
		if f := story(); f.Len() != 0 {
			t.Errorf("%s: it is back: %+v", name, f.Leases())
		}
	}
}

// knowing is a cluster, and the grants of which it knows what became: its own,
// those of the clusters that it comes from, and of those that ended for it.
type knowing struct {
	*fork
	grants map[kv.WorkerID]bool
}

func (c *knowing) look() {
	for _, h := range c.holders() { // order-free: a set
		c.grants[h] = true
	}
}

// saved is a copy that a replica has, and what its cluster knew.
type saved struct {
	*legend
	gen    uint64
	holds  map[Key]kv.WorkerID
	grants map[kv.WorkerID]bool
}

// However many clusters begin from each other's copies and end for each other, in
// cycles too, and whoever comes late with an old copy: brought is what a cluster
// doesn't know, and a lease that it knows doesn't come back, by whatever way.
func TestMergesReviveNothingInCycles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var holder kv.WorkerID
		root := &knowing{&fork{NewState(), 1}, make(map[kv.WorkerID]bool)}
		root.log(Command{Kind: Generation, Gen: 1, Cluster: 1})
		all := []*knowing{root}
		var copies []*saved
		cluster := rapid.Custom(func(t *rapid.T) *knowing { return rapid.SampledFrom(all).Draw(t, "cluster") })
		for range 80 {
			c := cluster.Draw(t, "to")
			switch rapid.SampledFrom([]string{"change", "change", "begin", "generation", "copy", "end", "end", "come late"}).Draw(t, "what") {
			case "change":
				for range 2 {
					c.change(t, &holder)
					c.look()
				}
			case "begin":
				if len(all) < 3 {
					next := Cluster(len(all) + 1)
					all = append(all, &knowing{c.began(next, c.gen+1), maps.Clone(c.grants)})
				}
			case "generation": // past that of one that ended for it
				c.log(Command{Kind: Generation, Gen: c.gen + 1, Cluster: c.cluster})
			case "copy":
				copies = append(copies, c.save())
			case "end":
				c.takes(t, cluster.Draw(t, "ends").save())
			case "come late":
				if len(copies) > 0 {
					c.takes(t, rapid.SampledFrom(copies).Draw(t, "copy"))
				}
			}
		}
	})
}

func (c *knowing) save() *saved { return &saved{c.legend(), c.gen, c.holders(), maps.Clone(c.grants)} }

// takes has what a copy holds brought, and checks what comes of it.
func (c *knowing) takes(t *rapid.T, from *saved) {
	want := c.holders()
	for k, h := range from.holds { // order-free: each by itself
		if want[k] == 0 && !c.grants[h] {
			want[k] = h
		}
	}
	if c.gen <= from.gen { // one that ends waits for that
		c.log(Command{Kind: Generation, Gen: from.gen + 1, Cluster: c.cluster})
	}
	old := *from.legend
	c.bring(&old)
	for _, l := range from.leases {
		if now, ok := c.Lease(l.Key); ok && now.Holder == l.Holder && !c.grants[l.Holder.Target.Worker] && !l.Token.Less(now.Token) {
			t.Fatalf("cluster %d brought a lease with token %+v, cluster %d gave it %+v: tokens don't grow", old.of, l.Token, c.cluster, now.Token)
		}
	}
	if got := c.holders(); !maps.Equal(got, want) {
		t.Fatalf("cluster %d has %v with what cluster %d brought, want %v", c.cluster, got, old.of, want)
	}
	maps.Copy(c.grants, from.grants)
}

// What is proposed of many leases may be lost, and others may bring the same, or an
// older copy of it, at the same time: in the end all were brought, each once, and
// what is ended in between stays so.
func TestLostProposalsAreBroughtAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fork{NewState(), 1}
		f.log(Command{Kind: Generation, Gen: 1, Cluster: 1})
		grow := func(n int) {
			for range n {
				var entry []Command
				for range rapid.IntRange(1, maxBrought/2).Draw(t, "of one entry") {
					i := f.Len() + len(entry)
					entry = append(entry, Command{Kind: Acquire, Key: Key{byte(i >> 8), byte(i)}, Holder: Holder{Target: kv.Target{Worker: kv.WorkerID(i)}}})
				}
				f.log(entry...)
			}
		}
		grow(3)
		before := f.legend()
		grow(3)
		bringers := []*legend{f.legend(), f.legend(), before}
		to := &fork{NewState(), 2}
		to.log(Command{Kind: Generation, Gen: 2, Cluster: 2})
		granted, ended := make(map[Key]int), make(map[Key]bool)
		for now := clock.Instant(1); len(bringers) > 0; now = now.Add(time.Second) {
			i := rapid.IntRange(0, len(bringers)-1).Draw(t, "who")
			commands, over := bringers[i].next(now, to.State)
			if over {
				bringers = slices.Delete(bringers, i, i+1)
				continue
			}
			if len(commands) == 0 || rapid.IntRange(0, 2).Draw(t, "lost") == 0 {
				continue
			}
			for _, e := range to.log(commands...) {
				if e.Kind == Granted {
					granted[e.Lease.Key]++
				}
			}
			for k, l := range to.leases { // order-free: one of them
				ended[k] = true
				to.log(Command{Kind: Revoke, Key: k, Expect: l.Token})
				break
			}
		}
		for k := range f.leases { // order-free: each by itself
			if _, held := to.Lease(k); granted[k] != 1 || held == ended[k] {
				t.Fatalf("lease %x was granted %d times, ended: %v, held: %v", k, granted[k], ended[k], held)
			}
		}
		if to.knows(1) != f.knows(1) {
			t.Fatalf("it knows the other cluster up to %+v of %+v", to.knows(1), f.knows(1))
		}
	})
}
