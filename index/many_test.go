package index_test

import (
	"sync"
	"testing"

	"github.com/rhizome-router/rhizome/index"
)

// TestTenThousandWorkers: so many slots share a prompt's blocks; all are found
// while some are dropped and others take their place, and all can go.
func TestTenThousandWorkers(t *testing.T) {
	const workers, blocks = 10_000, 20
	x, keys := index.New(index.Config{}), chain(blocks)
	in := make([]index.Change, blocks)
	for i, k := range keys {
		in[i] = index.Change{Key: k, Present: true, Whole: true}
	}
	slots := make([]index.Slot, workers)
	for i := range slots {
		slots[i] = x.Open(index.HBMThenOneTier)
		x.Apply(slots[i], in[:1+i%blocks])
	}
	var others sync.WaitGroup
	others.Go(func() {
		for i := range 20 {
			x.Drop(slots[i])
			slots[i] = x.Open(index.HBMThenOneTier)
			x.Apply(slots[i], in[:1+i%blocks])
		}
	})
	for range 20 {
		for _, h := range x.Match(keys, nil) {
			if h.Len() < 1 || h.Len() > blocks || h.Promised != h.Run {
				t.Errorf("%+v", h)
			}
		}
	}
	others.Wait()
	found := make(map[index.Slot]int)
	for _, h := range x.Match(keys, nil) {
		found[h.Slot] = h.HBM
	}
	for i, s := range slots {
		if found[s] != 1+i%blocks {
			t.Errorf("slot %d holds %d blocks, found are %d", s, 1+i%blocks, found[s])
		}
		x.Drop(s)
	}
	x.Sweep(1 << 30)
	if st := x.Stats(); st.Holders != 0 || st.OpenSlots != 0 || len(found) != workers {
		t.Errorf("%d found, left behind: %+v", len(found), st)
	}
}
