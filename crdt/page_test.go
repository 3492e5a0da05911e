package crdt

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestPagesAgree: copies fed by random, late, repeated and partial deltas from
// each other hold what the writer held, at each position where they are
// complete, and reach the writer once the network lets them.
func TestPagesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 12
		writer := NewPage(limit)
		pages := []*Page{writer, NewPage(limit), NewPage(limit), NewPage(limit)}
		shown := make([]map[string]uint64, len(pages))
		for i := range shown {
			shown[i] = map[string]uint64{}
		}
		digests := map[uint64]uint64{0: 0}
		now := int64(0)
		var late []Delta
		take := func(to int, d Delta) Outcome {
			return pages[to].Merge(now, &d, func(key string, it *PageItem) {
				if it == nil {
					if _, ok := shown[to][key]; !ok {
						t.Fatalf("%s went from copy %d, which did not have it", key, to)
					}
					delete(shown[to], key)
				} else {
					shown[to][key] = it.Version
				}
			})
		}
		check := func() {
			digests[writer.At().Version] = writer.Digest()
			for i, p := range pages {
				if at := p.At(); at.Version > at.Deleted {
					t.Fatalf("copy %d is at %+v", i, at)
				} else if want := digests[at.Version]; at.Complete() && p.Digest() != want {
					t.Fatalf("copy %d at %d: digest %x, the writer had %x", i, at.Version, p.Digest(), want)
				}
				if i > 0 && fmt.Sprint(shown[i]) != fmt.Sprint(held(p)) {
					t.Fatalf("copy %d told of %v and holds %v", i, shown[i], held(p))
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := fmt.Sprint(rapid.IntRange(0, 2*limit).Draw(t, "key"))
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				writer.Put(now, key, []byte(key), rapid.Int64Range(0, 50).Draw(t, "life"))
			case 4:
				writer.Delete(key)
			case 5:
				now += rapid.Int64Range(0, 20).Draw(t, "time")
				writer.Expire(now)
			case 6, 7:
				from := rapid.IntRange(0, len(pages)-1).Draw(t, "from")
				to := rapid.IntRange(1, len(pages)-1).Draw(t, "to")
				d := pages[from].Since(now, pages[to].At(), rapid.IntRange(0, 200).Draw(t, "bytes"))
				late = append(late, d)
				if rapid.Bool().Draw(t, "arrives") {
					take(to, d)
				}
			case 8:
				if len(late) > 0 {
					take(rapid.IntRange(1, len(pages)-1).Draw(t, "to"), rapid.SampledFrom(late).Draw(t, "late"))
				}
			case 9:
				writer.floor = max(writer.floor, rapid.Uint64Range(0, writer.At().Version).Draw(t, "floor"))
				writer.gone = writer.goneAfter(writer.floor)
			}
			check()
		}
		for i := range pages[1:] {
			for rounds := 0; pages[i+1].At() != writer.At(); rounds++ {
				if take(i+1, writer.Since(now, pages[i+1].At(), 100)) != Applied || rounds > 100 {
					t.Fatalf("copy %d stays at %+v, the writer is at %+v", i+1, pages[i+1].At(), writer.At())
				}
			}
		}
		check()
	})
}

// held is a page's values, those past their life too.
func held(p *Page) map[string]uint64 {
	all := map[string]uint64{}
	p.Each(math.MinInt64, func(it *PageItem) bool { all[it.Key] = it.Version; return true })
	return all
}

// TestPageAges: what travels is how old a value is, so it is equally old
// wherever it arrives, and a copy of a copy adds what the copy held it for.
func TestPageAges(t *testing.T) {
	const s = int64(1e9)
	writer, near, far := NewPage(10), NewPage(10), NewPage(10)
	writer.Put(100*s, "a", []byte("1"), 10*s)
	writer.Put(101*s, "b", []byte("2"), 0)
	// Their clocks are hours apart.
	d := writer.Since(103*s, near.At(), 1000)
	near.Merge(7*s, &d, nil)
	d = near.Since(9*s, far.At(), 1000)
	far.Merge(900*s, &d, nil)
	a, _ := far.Get(900*s, "a")
	b, _ := far.Get(900*s, "b")
	if a == nil || b == nil || 900*s-a.At != 5*s || a.Until-900*s != 5*s || 900*s-b.At != 4*s || b.Until != math.MaxInt64 {
		t.Errorf("a %+v, b %+v", a, b)
	}
	if _, ok := far.Get(905*s, "a"); ok {
		t.Error("a value outlived its life on a copy")
	}
	if far.Merge(901*s, &d, nil) != Duplicate || a.Until-900*s != 5*s {
		t.Error("what came twice was refreshed")
	}
}

// TestPageForgets: the value put longest ago goes for one more, a copy too far
// behind the remembered deletions gets all, and a copy takes no more than it may.
func TestPageForgets(t *testing.T) {
	p := NewPage(2)
	for _, key := range []string{"a", "b", "a", "c"} {
		p.Put(0, key, nil, 0)
	}
	if _, ok := p.Get(0, "b"); ok || p.Len() != 2 {
		t.Errorf("%v is left of a, b, a, c", held(p))
	}
	copied := NewPage(1)
	if d := p.Since(0, copied.At(), 1000); copied.Merge(0, &d, nil) != Overflow || copied.Len() != 0 {
		t.Error("a copy took more than it may hold")
	}
	copied = NewPage(2)
	d := p.Since(0, copied.At(), 1000)
	copied.Merge(0, &d, nil)
	for range maxGone + 1 {
		p.Put(0, "d", nil, 0)
		p.Delete("d")
	}
	if d := p.Since(0, copied.At(), 1000); !d.Whole || copied.Merge(0, &d, nil) != Applied || copied.Digest() != p.Digest() {
		t.Error("a copy far behind did not get the whole page")
	}
}
