package model

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/kv"
)

func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := NewTable(0)
		want := map[kv.EngineHash]int32{}
		hash := rapid.Custom(func(t *rapid.T) kv.EngineHash {
			return kv.EngineHash(rapid.Uint64Range(0, 40).Draw(t, "hash"))
		})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				h, v := hash.Draw(t, "h"), rapid.Int32Range(0, 1000).Draw(t, "v")
				tab.Set(h, v)
				want[h] = v
			},
			"add": func(t *rapid.T) {
				h, v := hash.Draw(t, "h"), rapid.Int32Range(0, 1000).Draw(t, "v")
				old, there := want[h]
				if !there {
					want[h], old = v, -1
				}
				if got := tab.Add(h, v); got != old {
					t.Fatalf("add(%d) = %d, want %d", h, got, old)
				}
			},
			"remove": func(t *rapid.T) {
				h := hash.Draw(t, "h")
				tab.Remove(h)
				delete(want, h)
			},
			"": func(t *rapid.T) {
				if tab.n != len(want) {
					t.Fatalf("%d entries, want %d", tab.n, len(want))
				}
				for h := range kv.EngineHash(41) {
					v, ok := want[h]
					if !ok {
						v = -1
					}
					if got := tab.Get(h); got != v {
						t.Fatalf("get(%d) = %d, want %d", h, got, v)
					}
				}
			},
		})
	})
}

func TestLRUIsDeepestFirst(t *testing.T) {
	p := newPool(8)
	var chain []int32
	for i := range 4 {
		id := p.takeBlank()
		p.name(id, kv.EngineHash(i+1), 0, false, 0)
		chain = append(chain, id)
	}
	for _, id := range slices.Backward(chain) {
		p.unpin(id)
	}
	for want := kv.EngineHash(4); want > 0; want-- {
		id := p.oldest()
		if got := p.blocks[id].hash; got != want {
			t.Fatalf("evicts %d, want %d", got, want)
		}
		p.forget(id)
	}
}
