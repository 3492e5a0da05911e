package sim

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// draw returns a number that follows from a seed, a name and an index alone,
// so that it is the same whatever is routed how.
func draw(seed uint64, name string, i uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], seed)
	binary.LittleEndian.PutUint64(b[8:], i)
	return xxh3.HashSeed(b[:], xxh3.HashString(name))
}
