package route

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/kv"
)

// Promises arrive as they were made, and bytes of any kind do no harm.
func TestTicketsOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := kv.Target{Worker: kv.WorkerID(rapid.Uint64().Draw(t, "worker")), Rank: rapid.Int16().Draw(t, "rank")}
		boot := kv.Boot(rapid.Uint64().Draw(t, "boot"))
		var keys []kv.Key
		for _, k := range rapid.SliceOfN(rapid.Uint64(), 0, 20).Draw(t, "keys") {
			keys = append(keys, kv.Key(k))
		}
		to, life, blocks, ok := decodeTicket(encodeTicket(target, boot, keys))
		if !ok || to != target || life != boot || !slices.Equal(blocks, keys) {
			t.Fatalf("%v %v %v arrives as %v %v %v, %v", target, boot, keys, to, life, blocks, ok)
		}
		decodeTicket(rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "bytes"))
	})
}
