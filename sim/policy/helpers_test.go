package policy

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

func TestBookReturnsToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook(3)
		b.active = &activeBlocks{cells: make([]activeCell, 4)} // grows, wraps and closes gaps soon
		open := map[uint64]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := rapid.Uint64Range(1, 8).Draw(t, "id")
				keys := chain(rapid.IntRange(1, 2).Draw(t, "prompt"), rapid.IntRange(0, 5).Draw(t, "blocks"))
				b.add(id, rapid.IntRange(0, 2).Draw(t, "worker"), rapid.IntRange(0, 900).Draw(t, "tokens"), keys)
				open[id] = true
			},
			"first": func(t *rapid.T) { b.firstToken(rapid.Uint64Range(1, 8).Draw(t, "id")) },
			"done": func(t *rapid.T) {
				id := rapid.Uint64Range(1, 8).Draw(t, "id")
				b.done(id)
				delete(open, id)
			},
			"": func(t *rapid.T) {
				want := make([]load, 3)
				held := map[activeCell]bool{}
				for _, at := range b.byID {
					l := &want[at.worker]
					l.requests++
					if at.waiting {
						l.waiting++
						l.prefillTokens += at.prefillTokens
					}
					for _, k := range at.keys {
						held[activeCell{key: k, worker: int32(at.worker)}] = true
					}
				}
				for block := range held {
					want[block.worker].blocks++
				}
				if len(b.byID) != len(open) || !slices.Equal(b.loads, want) || b.active.used != len(held) {
					t.Fatalf("loads %+v of %d requests, want %+v of %d", b.loads, len(b.byID), want, len(open))
				}
			},
		})
		for id := range open {
			b.done(id)
		}
		if !slices.Equal(b.loads, make([]load, 3)) || b.active.used != 0 {
			t.Fatalf("with nothing in flight the loads are %+v, active blocks %d", b.loads, b.active.used)
		}
	})
}

func TestNewBlocks(t *testing.T) {
	b := newBook(2)
	b.active = newActiveBlocks()
	b.add(1, 0, 0, chain(1, 7))
	for blocks := range 12 {
		if got, want := b.newBlocks(0, chain(1, blocks)), max(0, blocks-7); got != want {
			t.Errorf("%d blocks: %d are new, want %d", blocks, got, want)
		}
	}
	if got := b.newBlocks(1, chain(1, 5)); got != 5 {
		t.Errorf("on another worker %d of 5 blocks are new", got)
	}
}

// A tree remembers the blocks used last, and whole beginnings of prompts.
func TestTreeAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capBlocks = 6
		tr := newTree(1, capBlocks)
		var list []kv.Key // used last first
		t.Repeat(map[string]func(*rapid.T){
			"touch": func(t *rapid.T) {
				keys := chain(rapid.IntRange(1, 3).Draw(t, "prompt"), rapid.IntRange(1, 8).Draw(t, "blocks"))
				tr.touch(0, 0, keys)
				list = slices.DeleteFunc(list, func(k kv.Key) bool { return slices.Contains(keys, k) })
				list = append(slices.Clone(keys), list...)
				list = list[:min(len(list), capBlocks)]
			},
			"": func(t *rapid.T) {
				if tr.size(0) != len(list) {
					t.Fatalf("%d blocks, want %d", tr.size(0), len(list))
				}
				for prompt := range 4 {
					keys, want := chain(prompt, 9), 0
					for want < len(keys) && slices.Contains(list, keys[want]) {
						want++
					}
					if got := tr.run(0, keys); got != want {
						t.Fatalf("prompt %d: run %d, want %d", prompt, got, want)
					}
				}
			},
		})
	})
}

func TestTreeForgetsUnused(t *testing.T) {
	tr := newTree(2, 100)
	tr.lifetime = time.Minute
	tr.touch(0, 0, chain(1, 4))
	tr.touch(clock.Instant(30*time.Second), 0, chain(2, 3))
	tr.touch(clock.Instant(61*time.Second), 0, chain(3, 1))
	if a, b := tr.run(0, chain(1, 4)), tr.run(0, chain(2, 3)); a != 0 || b != 3 {
		t.Errorf("runs %d and %d, want 0 of the old prompt and 3 of the young one", a, b)
	}
	tr.forget(0)
	if tr.size(0) != 0 {
		t.Errorf("%d blocks of a forgotten worker", tr.size(0))
	}
}

// holders is a set of lists, whatever the order of things.
func TestHoldersAgainstLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHolders(Config{Workers: 14, Seed: rapid.Uint64().Draw(t, "seed")})
		h.cells = make([]holderCell, 4) // grows, wraps and closes gaps soon
		lists := map[kv.Key][]entry{}
		key := rapid.Custom(func(t *rapid.T) kv.Key { return kv.Key(rapid.IntRange(1, 9).Draw(t, "key")) })
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k, e := key.Draw(t, "k"), tierEntry(rapid.IntRange(0, 13).Draw(t, "worker"), kv.Tier(rapid.IntRange(0, 1).Draw(t, "tier")))
				h.add(k, e)
				list := slices.DeleteFunc(slices.Clone(lists[k]), func(x entry) bool { return x == e })
				list = append([]entry{e}, list...)
				lists[k] = list[:min(len(list), holdersPerBlock)]
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "k")
				if len(lists[k]) > 0 {
					e := rapid.SampledFrom(lists[k]).Draw(t, "entry")
					h.remove(k, e)
					lists[k] = slices.DeleteFunc(slices.Clone(lists[k]), func(x entry) bool { return x == e })
				}
				h.remove(k, speculativeEntry(3))
			},
			"forget": func(t *rapid.T) {
				w := rapid.IntRange(0, 13).Draw(t, "worker")
				h.forget(w)
				for k := range lists {
					lists[k] = slices.DeleteFunc(slices.Clone(lists[k]), func(x entry) bool { return x.worker() == w })
				}
			},
			"": func(t *rapid.T) {
				n := 0
				for k := kv.Key(1); k < 10; k++ {
					if got := h.find(k); !slices.Equal(got, lists[k]) {
						t.Fatalf("block %d: %v, want %v", k, got, lists[k])
					}
					if len(lists[k]) > 0 {
						n++
					}
				}
				if h.keys != n {
					t.Fatalf("%d blocks counted, want %d", h.keys, n)
				}
			},
		})
	})
}

// Workers beyond the table's range have no entries, and nobody else's.
func TestHoldersRange(t *testing.T) {
	r := alone(maxHolderWorkers+1, LLMDPrecise(DefaultLLMDPrecise())).(*llmdPrecise)
	stored(r, maxHolderWorkers-1, 0, kv.HBM, chain(1, 3))
	stored(r, maxHolderWorkers, 0, kv.HBM, chain(2, 3))
	r.speculate(0, maxHolderWorkers, chain(3, 3))
	for prompt, want := range map[int]int{1: 3, 2: 0, 3: 0} {
		r.match(chain(prompt, 3))
		if got := slices.Max(r.runs); got != want || r.runs[maxHolderWorkers-1] != want {
			t.Errorf("prompt %d is found for %d blocks, want %d", prompt, got, want)
		}
	}
}

func TestTiesAreEven(t *testing.T) {
	r := newReplica(Config{Workers: 4, Seed: 3}, "x", 0)
	var n [4]int
	for range 4000 {
		l := r.least()
		for w := range 4 {
			l.offer(w, float64(w/3)) // workers 0, 1 and 2 are equal
		}
		n[l.worker]++
	}
	if n[3] != 0 || min(n[0], n[1], n[2]) < 1200 {
		t.Errorf("ties went %v, want about 1333 each to the first three", n)
	}
}
