package index

import (
	"testing"

	"pgregory.net/rapid"
)

// check verifies a shard's own invariants and that b knows its memory.
func (sh *shard) check(t *rapid.T, b *budget) {
	t.Helper()
	keys, holders := 0, 0
	for i := range sh.cells {
		c := &sh.cells[i]
		if c.h[0] == 0 {
			continue
		}
		keys++
		if at, found := sh.find(c.key); !found || at != i {
			t.Fatalf("key %d lies in cell %d but is found in %d, %v", c.key, i, at, found)
		}
		v := sh.view(c)
		holders += len(v)
		for j, h := range v {
			if h&markMask == 0 || h&promised != 0 && h&onHBM != 0 {
				t.Fatalf("key %d: holder %#x", c.key, h)
			}
			if j > 0 && v[j-1].slot() >= h.slot() {
				t.Fatalf("key %d: holders out of order: %v", c.key, v)
			}
		}
	}
	if keys != sh.keys || holders != sh.holders {
		t.Fatalf("counted %d keys, %d holders; the shard says %d, %d", keys, holders, sh.keys, sh.holders)
	}
	bytes := int64(cellBytes * len(sh.cells))
	for _, p := range sh.pools {
		bytes += int64(4 * cap(p.mem))
	}
	if used := b.used.Load(); used != bytes || used > b.max {
		t.Fatalf("memory is %d B, the budget says %d of %d", bytes, used, b.max)
	}
}

func TestShardIsAMap(t *testing.T) {
	type pair struct {
		key  uint64
		slot Slot
	}
	rapid.Check(t, func(t *rapid.T) {
		b := &budget{max: rapid.SampledFrom([]int64{400, 1500, 1 << 30}).Draw(t, "max")}
		// The smallest and the largest crowd the cells at one end, where probing wraps around.
		sh := &shard{mult: rapid.SampledFrom([]uint64{1, ^uint64(0), 0x9e3779b97f4a7c15}).Draw(t, "mult")}
		keys := rapid.Uint64Range(0, rapid.SampledFrom([]uint64{2, 12, 100}).Draw(t, "keys"))
		slots := rapid.Uint32Range(0, rapid.SampledFrom([]uint32{2, 9, 70}).Draw(t, "slots"))
		marks := rapid.Uint32Range(0, uint32(markMask))
		model := map[pair]holder{}
		for range rapid.SampledFrom([]int{5, 50, 400}).Draw(t, "steps") {
			if rapid.IntRange(0, 60).Draw(t, "sweep") == 0 {
				gone := Slot(slots.Draw(t, "gone"))
				all := &slotTable{states: make([]slotState, 71)}
				for i := range all.states {
					all.states[i] = slotOpen
				}
				sh.sweep(all.with(gone, slotDraining, nil), b)
				for p := range model {
					if p.slot == gone {
						delete(model, p)
					}
				}
				continue
			}
			p := pair{keys.Draw(t, "key"), Slot(slots.Draw(t, "slot"))}
			set, clear := holder(marks.Draw(t, "set")), holder(marks.Draw(t, "clear"))
			if clear&1 == 0 { // plain insertions, as most are
				clear = 0
			}
			had := model[p]
			want := (had | set) &^ clear
			if want&onHBM != 0 {
				want &^= promised
			}
			prior, ok := sh.update(p.key, p.slot, set, clear, b)
			switch {
			case !ok && (had != 0 || want == 0 || b.max == 1<<30):
				t.Fatalf("refused though it needs no memory or there is enough")
			case prior != had:
				t.Fatalf("prior marks %#x, want %#x", prior, had)
			case ok && want == 0:
				delete(model, p)
			case ok:
				model[p] = want
			}
		}
		sh.check(t, b)
		if len(model) != sh.holders {
			t.Fatalf("%d holders, want %d", sh.holders, len(model))
		}
		for p, want := range model {
			i, found := sh.find(p.key)
			if !found {
				t.Fatalf("key %d is lost", p.key)
			}
			v := sh.view(&sh.cells[i])
			if j, ok := search(v, p.slot); !ok || v[j]&markMask != want {
				t.Fatalf("key %d slot %d: %v, want marks %#x", p.key, p.slot, v, want)
			}
		}
	})
}
