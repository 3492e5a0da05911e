package index

import (
	"testing"

	"pgregory.net/rapid"
)

// check verifies a shard's own invariants and that b knows its memory.
func (sh *shard) check(t *rapid.T, b *common) {
	t.Helper()
	keys, holders, passed := 0, 0, make([]uint32, len(sh.buckets))
	for i := range sh.buckets {
		bu := &sh.buckets[i]
		for c, h := range bu.h {
			if h == 0 {
				continue
			}
			keys++
			if in, at := sh.find(bu.place(c)); in != bu || at != c {
				t.Fatalf("place %d lies in bucket %d, cell %d, and is found elsewhere", bu.place(c), i, c)
			}
			for p := sh.home(bu.place(c)); p != i; p = sh.next(p) {
				passed[p]++
			}
			v := sh.view(bu, c)
			holders += len(v)
			for j, h := range v {
				if h&markMask == 0 || h&promised != 0 && h&onHBM != 0 {
					t.Fatalf("place %d: holder %#x", bu.place(c), h)
				}
				if j > 0 && v[j-1].slot() >= h.slot() {
					t.Fatalf("place %d: holders out of order: %v", bu.place(c), v)
				}
			}
		}
	}
	for i := range sh.buckets {
		if got := sh.buckets[i].passed(); got != passed[i] && got != maxPassed {
			t.Fatalf("bucket %d says that %d passed it, and %d did", i, got, passed[i])
		}
	}
	if keys != int(sh.keys) || holders != int(sh.holders) {
		t.Fatalf("counted %d keys, %d holders; the shard says %d, %d", keys, holders, sh.keys, sh.holders)
	}
	bytes := int64(bucketBytes * len(sh.buckets))
	bytes += int64(4 * cap(sh.pool))
	if used := b.used.Load(); used != bytes || used > b.max {
		t.Fatalf("memory is %d B, the budget says %d of %d", bytes, used, b.max)
	}
}

func TestShardIsAMap(t *testing.T) {
	type pair struct {
		at   place
		slot Slot
	}
	rapid.Check(t, func(t *rapid.T) {
		b := &common{budget: budget{max: rapid.SampledFrom([]int64{400, 1500, 1 << 30}).Draw(t, "max")}}
		sh := &shard{}
		// The first and the last crowd the buckets at one end, where probing wraps around.
		mult := rapid.SampledFrom([]uint64{1, ^uint64(0), 0x9e3779b97f4a7c15}).Draw(t, "mult")
		keys := rapid.Uint64Range(0, rapid.SampledFrom([]uint64{2, 12, 100, 2000}).Draw(t, "keys"))
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
				sh.sweep(0, len(sh.buckets), all.with(gone, slotDraining, nil), b)
				sh.shrink(b)
				for p := range model {
					if p.slot == gone {
						delete(model, p)
					}
				}
				continue
			}
			p := pair{placeOf(keys.Draw(t, "key") * mult), Slot(slots.Draw(t, "slot"))}
			set, clear := holder(marks.Draw(t, "set")), holder(marks.Draw(t, "clear"))
			if clear&1 == 0 { // plain insertions, as most are
				clear = 0
			}
			had := model[p]
			want := (had | set) &^ clear
			if want&onHBM != 0 {
				want &^= promised
			}
			prior, ok := sh.update(p.at, p.slot, set, clear, b)
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
		if len(model) != int(sh.holders) {
			t.Fatalf("%d holders, want %d", sh.holders, len(model))
		}
		for p, want := range model {
			bu, c := sh.find(p.at)
			if bu == nil {
				t.Fatalf("place %d is lost", p.at)
			}
			v := sh.view(bu, c)
			if j, ok := search(v, p.slot); !ok || v[j]&markMask != want {
				t.Fatalf("place %d slot %d: %v, want marks %#x", p.at, p.slot, v, want)
			}
		}
	})
}
