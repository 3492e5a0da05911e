package index

import "math/bits"

// A pool keeps runs of holders of one size. A run's first word is how many
// holders follow, sorted by slot.
type pool struct {
	mem  []holder
	free holder // the first free run + 1; each free run holds the next one's
}

const (
	// A run's reference is its class, then its number + 1, then no marks.
	classShift = 27
	maxRuns    = 1<<(classShift-markBits) - 2
)

// runWords returns the words of a run: 3, 4, 6, 8, 12, 16, … by class.
func runWords(class int) int { return (3 + class&1) << (class >> 1) }

// classOf returns the least class whose runs hold n holders, n > 1.
func classOf(n int) int {
	k := bits.Len(uint(n)) - 2 // 2<<k ≤ n < 4<<k, and n+1 words are needed
	if n < 3<<k {
		return 2 * k
	}
	return 2*k + 1
}

func classIn(ref holder) int { return int(ref >> classShift) }

func reference(class int, number holder) holder {
	return holder(class)<<classShift | (number+1)<<markBits
}

func numberIn(ref holder) holder { return ref&(1<<classShift-1)>>markBits - 1 }

// run returns the memory of a run, as long as it is.
func (sh *shard) run(ref holder) []holder {
	class := classIn(ref)
	words := runWords(class)
	at := int(numberIn(ref)) * words
	return sh.pools[class].mem[at : at+words]
}

// held returns the holders in a run.
func (sh *shard) held(ref holder) []holder {
	run := sh.run(ref)
	return run[1 : 1+run[0]]
}

// alloc returns a run for n holders, n > 1. It may move the other runs of the
// same size. ok is false if the budget refused it.
func (sh *shard) alloc(n int, b *common) (ref holder, ok bool) {
	class := classOf(n)
	words := runWords(class)
	for len(sh.pools) <= class {
		sh.pools = append(sh.pools, pool{})
	}
	p := &sh.pools[class]
	if p.free != 0 {
		ref = reference(class, p.free-1)
		p.free = sh.run(ref)[0]
		return ref, true
	}
	number := len(p.mem) / words
	if number > maxRuns {
		return 0, false
	}
	if grown := len(p.mem) + max(words, len(p.mem)/4); cap(p.mem) < len(p.mem)+words {
		if !b.charge(4 * int64(grown-cap(p.mem))) {
			return 0, false
		}
		mem := make([]holder, len(p.mem), grown)
		copy(mem, p.mem)
		p.mem = mem
	}
	p.mem = p.mem[:len(p.mem)+words]
	return reference(class, holder(number)), true
}

func (sh *shard) free(ref holder) {
	p := &sh.pools[classIn(ref)]
	sh.run(ref)[0] = p.free
	p.free = numberIn(ref) + 1
}
