package crdt

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTable crowds the cells at both ends, where probing wraps around.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab table
		hashes := map[uint32]uint64{}
		for range rapid.SampledFrom([]int{3, 20, 100}).Draw(t, "steps") {
			i := rapid.Uint32Range(0, 30).Draw(t, "number")
			if h, held := hashes[i]; held {
				tab.remove(i, h, func(j uint32) uint64 { return hashes[j] })
				delete(hashes, i)
				continue
			}
			if tab.full() {
				tab.grow()
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
			for p := tab.home(h); ; p = tab.next(p) {
				if tab.cells[p] == 0 {
					t.Fatalf("%d, hash %x, is lost", want, h)
				}
				if i, maybe := tab.get(p, h); maybe && i == want {
					break
				}
			}
		}
	})
}
