package index

import "math/bits"

// A pool keeps runs of holders of one size, 4 << class.
type pool struct {
	mem  []holder
	free holder // the first free run + 1; each free run holds the next one's
}

const (
	// A run's reference is its class << refBits | its number.
	refBits = 27
	refMask = 1<<refBits - 1
)

// run returns the memory of a run, as long as it is.
func (sh *shard) run(ref holder) []holder {
	size := 4 << (ref >> refBits)
	at := int(ref&refMask) * size
	return sh.pools[ref>>refBits].mem[at : at+size]
}

// alloc returns a run for n holders, n > 2. It may move the other runs of the
// same size. ok is false if the budget refused it.
func (sh *shard) alloc(n int, b *budget) (ref holder, ok bool) {
	class := max(bits.Len(uint(n-1))-2, 0)
	size := 4 << class
	for len(sh.pools) <= class {
		sh.pools = append(sh.pools, pool{})
	}
	p := &sh.pools[class]
	if p.free != 0 {
		ref = holder(class)<<refBits | (p.free - 1)
		p.free = sh.run(ref)[0]
		return ref, true
	}
	if grown := len(p.mem) + max(size, len(p.mem)/4); cap(p.mem) < len(p.mem)+size {
		if !b.charge(4 * int64(grown-cap(p.mem))) {
			return 0, false
		}
		mem := make([]holder, len(p.mem), grown)
		copy(mem, p.mem)
		p.mem = mem
	}
	ref = holder(class)<<refBits | holder(len(p.mem)/size)
	p.mem = p.mem[:len(p.mem)+size]
	return ref, true
}

func (sh *shard) free(ref holder) {
	p := &sh.pools[ref>>refBits]
	sh.run(ref)[0] = p.free
	p.free = ref&refMask + 1
}
