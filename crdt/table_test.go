package crdt

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTable crowds the buckets at both ends, where a search wraps around.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab table
		hashes := map[uint32]uint64{}
		for range rapid.SampledFrom([]int{3, 20, 300}).Draw(t, "steps") {
			i := rapid.Uint32Range(0, 80).Draw(t, "number")
			if h, held := hashes[i]; held {
				tab.remove(i, h)
				delete(hashes, i)
				continue
			}
			if tab.full() {
				tab.resize(len(hashes) + rapid.IntRange(1, 50).Draw(t, "room"))
				for j, h := range hashes {
					tab.add(j, h)
				}
			}
			h := rapid.SampledFrom([]uint64{0, 0, 1 << 60, ^uint64(0), ^uint64(0), 63 << 58}).Draw(t, "hash")
			hashes[i] = h
			tab.add(i, h)
		}
		if tab.used != len(hashes) {
			t.Fatalf("%d of %d", tab.used, len(hashes))
		}
		for want, h := range hashes {
			if !slices.Contains(slices.Collect(tab.all(h)), want) {
				t.Fatalf("%d, hash %x, is lost", want, h)
			}
		}
		for i, h := range hashes {
			tab.remove(i, h)
		}
		for p, b := range tab.buckets {
			if b != (bucket{}) {
				t.Fatalf("bucket %d of an empty table: %v", p, b)
			}
		}
	})
}

// A search ends where entries had gone on from every bucket.
func TestTableSearchEnds(t *testing.T) {
	var tab table
	tab.resize(20)
	if len(tab.buckets) != 2 {
		t.Fatalf("%d buckets", len(tab.buckets))
	}
	const first, second = uint64(0), ^uint64(0) // their homes
	for i := range uint32(bucketCells + 1) {
		tab.add(i, first)
	}
	for i := range uint32(9) {
		tab.remove(i, first)
	}
	for i := range uint32(bucketCells) {
		tab.add(100+i, second)
	}
	if got := len(slices.Collect(tab.all(first))); got != bucketCells+1-9 || tab.buckets[0].passed() == 0 || tab.buckets[1].passed() == 0 {
		t.Errorf("found %d, passed %v and %v", got, tab.buckets[0].passed(), tab.buckets[1].passed())
	}
}
