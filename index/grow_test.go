package index

import "testing"

// TestGrownTablesAreFull: however many blocks a shard has, from 250 on,
// they take no more than 16 B each.
func TestGrownTablesAreFull(t *testing.T) {
	var c common
	c.max = 1 << 30
	var sh shard
	for n := range 20_000 {
		h := hash(uint64(n), 0x9e3779b97f4a7c15)
		if _, ok := sh.update(placeOf(h), 1, onHBM, 0, &c); !ok {
			t.Fatalf("block %d was refused", n)
		}
		if used := c.used.Load(); n > 250 && used > 16*int64(n+1) {
			t.Fatalf("%d blocks take %d B, %.1f each", n+1, used, float64(used)/float64(n+1))
		}
	}
}
