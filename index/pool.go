package index

import "math/bits"

// pool is the memory of a shard for holders of blocks that have more than one: runs
// of some sizes, each a word with its class and how many holders it has, then these,
// sorted by slot. A run's reference is where it is. Runs that were given back are
// linked, by class: each holds where the next one is. The first word of each list is
// at the pool's beginning.
type pool []holder

const (
	// The first word of a run: its class above how many holders it has.
	countBits = 26
	countMask = 1<<countBits - 1

	// numClasses are enough for as many holders as there can be slots.
	numClasses = 2 * slotBits
	// maxPool is how many words references tell apart.
	maxPool = 1 << (32 - markBits)
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

func reference(at int) holder { return holder(at) << markBits }
func placeIn(ref holder) int  { return int(ref >> markBits) }

func (p pool) class(ref holder) int { return int(p[placeIn(ref)] >> countBits) }

// held returns the holders in a run.
func (p pool) held(ref holder) []holder {
	at := placeIn(ref)
	n := int(p[at] & countMask)
	return p[at+1 : at+1+n]
}

// room returns the memory for holders in a run.
func (p pool) room(ref holder) []holder {
	at := placeIn(ref)
	return p[at+1 : at+runWords(p.class(ref))]
}

// setCount says how many holders a run has.
func (p pool) setCount(ref holder, n int) {
	at := placeIn(ref)
	p[at] = p[at]&^countMask | holder(n)
}

// alloc returns a run for n holders, n > 1, with none. It may move the others. ok is
// false if the budget refused it.
func (sh *shard) alloc(n int, b *common) (ref holder, ok bool) {
	class := classOf(n)
	if len(sh.pool) > 0 && sh.pool[class] != 0 {
		at := int(sh.pool[class])
		sh.pool[class], sh.pool[at] = sh.pool[at], holder(class)<<countBits
		return reference(at), true
	}
	at := max(len(sh.pool), numClasses)
	end := at + runWords(class)
	if end > maxPool {
		return 0, false
	}
	if end > cap(sh.pool) {
		grown := append(pool(nil), make(pool, max(end, len(sh.pool)+len(sh.pool)/4))...) // all that the allocator gives
		if !b.charge(4 * int64(cap(grown)-cap(sh.pool))) {
			return 0, false
		}
		copy(grown, sh.pool)
		sh.pool = grown
	}
	sh.pool = sh.pool[:end]
	sh.pool[at] = holder(class) << countBits
	return reference(at), true
}

func (sh *shard) free(ref holder) {
	at, class := placeIn(ref), sh.pool.class(ref)
	sh.pool[at] = sh.pool[class]
	sh.pool[class] = holder(at)
}
