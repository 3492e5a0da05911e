package index_test

import (
	"testing"

	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
)

// TestBR20_MemoryHasALimitAndComesBack: prompts that nobody shares fill the
// index to its limit and no further, on the heap as by its own account; what is
// evicted or whose worker leaves is given back; one hot beginning with ever other
// ends takes no more with time.
func TestBR20_MemoryHasALimitAndComesBack(t *testing.T) {
	const limit = 3 << 20
	x := index.New(index.Config{MaxBytes: limit})
	empty, start := x.Stats().Bytes, testkit.LiveHeap()
	slots := []index.Slot{x.Open(index.HBMThenOneTier), x.Open(index.HBMThenOneTier)}
	prompt := func(root kv.Key, first, blocks int) []kv.Key {
		keys := make([]kv.Key, blocks)
		for i := range keys {
			root = kv.Next(root, kv.Content(first+i))
			keys[i] = root
		}
		return keys
	}
	change := func(s index.Slot, keys []kv.Key, present bool) {
		changes := make([]index.Change, len(keys))
		for i, k := range keys {
			changes[i] = index.Change{Key: k, Tier: kv.HBM, Present: present}
		}
		x.Apply(s, changes)
	}
	within := func(what string) {
		t.Helper()
		st, heap := x.Stats(), testkit.LiveHeap()-start
		if st.Bytes > limit || heap > limit+limit/4 {
			t.Errorf("%s: %d B by its account, %d B on the heap; the limit is %d B", what, st.Bytes, heap, limit)
		}
	}
	const prompts, blocks = 500, 400 // 200,000 blocks, far more than fit
	for i := range prompts {
		change(slots[i%2], prompt(kv.Key(i), 1_000_000*i, blocks), true)
	}
	change(slots[0], prompt(1, 7, 100_000), true) // and one that is very long
	within("full")
	if x.Stats().Refused == 0 {
		t.Error("nothing was refused")
	}
	for i := range prompts { // all is evicted by event
		change(slots[i%2], prompt(kv.Key(i), 1_000_000*i, blocks), false)
	}
	change(slots[0], prompt(1, 7, 100_000), false)
	if st := x.Stats(); st.Holders != 0 || st.Keys != 0 {
		t.Errorf("after all was evicted %d blocks and %d holders are left", st.Keys, st.Holders)
	}
	hot := prompt(3, 0, 100)
	var early int64
	for round := range 200 {
		change(slots[0], hot, true)
		end := prompt(hot[99], 1_000_000+round*100, 100)
		change(slots[0], end, true)
		change(slots[0], end, false)
		if st := x.Stats(); round == 50 {
			early = st.Bytes
		} else if round > 50 && st.Bytes > early {
			t.Fatalf("round %d: %d B, in round 50 it was %d B", round, st.Bytes, early)
		}
	}
	within("a hot beginning")
	for _, s := range slots { // the workers leave
		x.Drop(s)
	}
	x.Sweep(1 << 30)
	if st, heap := x.Stats(), testkit.LiveHeap()-start; st.Bytes > empty+limit/4 || st.OpenSlots != 0 || heap > limit/2 {
		t.Errorf("with no worker left: %d B by its account (%d B when new), %d B on the heap", st.Bytes, empty, heap)
	}
}
