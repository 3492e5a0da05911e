package lease

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/kv"
)

// fork is a cluster's state and what it may be told.
type fork struct {
	*State
	cluster Cluster
}

func (f *fork) log(c ...Command) []Event { return f.Take(f.index+1, &Proposal{Commands: c}) }

// change does something to a workflow.
func (f *fork) change(t *rapid.T) {
	c := Command{Kind: rapid.SampledFrom([]Kind{Acquire, Acquire, Revoke}).Draw(t, "kind"), Key: Key{rapid.ByteRange(0, 5).Draw(t, "key")},
		Holder: Holder{Target: kv.Target{Worker: kv.WorkerID(rapid.Uint64Range(1, 1<<40).Draw(t, "worker"))}}}
	if l, ok := f.Lease(c.Key); ok {
		c.Expect = l.Token
	}
	f.log(c)
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

func (f *fork) legend() *legend {
	return &legend{f.cluster, Token{f.gen, f.index}, slices.Clone(f.past), f.Leases()}
}

func (f *fork) bring(old *legend) {
	for _, commands := range old.unpack(f.Shared(old.past)) {
		f.log(commands...)
	}
}

// Of a cluster that ends for another what it granted since they parted is brought
// where a workflow has no lease, and nothing else changes: what was ended on the
// other side meanwhile stays so. Whoever comes with the same or an older copy
// later changes nothing at all, whatever was ended since.
func TestBroughtLeasesReviveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := &fork{NewState(), 1}
		root.log(Command{Kind: Generation, Gen: 1, Cluster: 1})
		change := func(f *fork) {
			for range rapid.IntRange(0, 12).Draw(t, "changes") {
				f.change(t)
			}
		}
		change(root)
		before := maps.Clone(root.leases)
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
		want := make(map[Key]Holder)
		for k, l := range b.leases { // order-free: a copy of some
			if was := before[k]; was == nil || *was != *l {
				want[k] = l.Holder
			}
		}
		for k, l := range a.leases { // order-free: each over another
			want[k] = l.Holder
		}
		a.bring(last)
		got := make(map[Key]Holder)
		for k, l := range a.leases { // order-free: a copy
			got[k] = l.Holder
		}
		if !maps.Equal(got, want) {
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

// Grants of one entry have one token: a proposal ends between entries only.
func TestProposalsOfWhatIsBroughtEndBetweenEntries(t *testing.T) {
	f := &fork{NewState(), 1}
	for i := range 3 {
		var all []Command
		for j := range maxBatch - 100 {
			all = append(all, Command{Kind: Acquire, Key: Key{byte(i), byte(j >> 8), byte(j)}})
		}
		f.log(all...)
	}
	to := &fork{NewState(), 2}
	for _, commands := range f.legend().unpack(Token{}) {
		to.log(commands...)
	}
	if to.Len() != f.Len() {
		t.Errorf("%d of %d leases were brought", to.Len(), f.Len())
	}
}
