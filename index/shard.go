package index

import (
	"math/bits"
	"slices"
)

const (
	shardBits = 12
	numShards = 1 << shardBits
)

// shard is one part of the table: buckets of one cache line each, with room for
// six blocks. A block goes into its home bucket or, where that is full, into
// the next with room; each bucket counts the blocks that passed it so. Nearly
// every search, also for what isn't there, so looks at one line, and removing
// moves nothing. Its methods need mu held.
type shard struct {
	mu      lock
	no      uint32 // which shard it is
	keys    int32
	holders int32
	buckets []bucket
	pool    pool
}

// bucket holds up to six blocks. Of a block it has the place within the shard,
// 52 bits in three parts, and its holders: one lies here; more lie in a run of a
// pool, and then h is the run's reference, whose mark bits are all 0. h is 0
// where there is no block.
type bucket struct {
	low    [bucketCells]uint32
	h      [bucketCells]holder
	middle [bucketCells]uint16
	rest   uint32 // 4 bits of each block's place, then 8 of how many passed
}

const (
	bucketCells = 6
	bucketBytes = 64
	restBits    = 4
	passedShift = bucketCells * restBits
	maxPassed   = 1<<(32-passedShift) - 1

	// A shard grows when its buckets hold more than maxFill hundredths of a block
	// each.
	maxFill = 88 * bucketCells
)

// hash spreads a key; no two keys have one hash. The top shardBits say the
// shard, the rest is the place within it.
func hash(key, mult uint64) uint64 { return (key ^ key>>32) * mult }

// place is where in a shard a block belongs: the hash without its top bits.
type place uint64

const placeBits = 64 - shardBits

func placeOf(hash uint64) place { return place(hash & (1<<placeBits - 1)) }

func (b *bucket) pooled(c int) bool { return b.h[c] != 0 && b.h[c]&markMask == 0 }

func (b *bucket) has(c int, at place) bool {
	return b.low[c] == uint32(at) && b.middle[c] == uint16(at>>32) && b.h[c] != 0 && b.rest>>(restBits*c)&(1<<restBits-1) == uint32(at>>48)
}

func (b *bucket) place(c int) place {
	return place(b.low[c]) | place(b.middle[c])<<32 | place(b.rest>>(restBits*c)&(1<<restBits-1))<<48
}

func (b *bucket) put(c int, at place, h holder) {
	b.low[c], b.middle[c], b.h[c] = uint32(at), uint16(at>>32), h
	b.rest = b.rest&^((1<<restBits-1)<<(restBits*c)) | uint32(at>>48)<<(restBits*c)
}

func (b *bucket) passed() uint32 { return b.rest >> passedShift }

// pass counts one more block that passed, or one less. A count that was once as
// large as it can be stays so.
func (b *bucket) pass(more bool) {
	switch {
	case b.passed() == maxPassed:
	case more:
		b.rest += 1 << passedShift
	default:
		b.rest -= 1 << passedShift
	}
}

// vacancy returns an empty cell of b, or -1.
func (b *bucket) vacancy() int {
	for c := range b.h {
		if b.h[c] == 0 {
			return c
		}
	}
	return -1
}

func (sh *shard) home(at place) int {
	hi, _ := bits.Mul64(uint64(at)<<shardBits, uint64(len(sh.buckets)))
	return int(hi)
}

func (sh *shard) next(p int) int {
	if p++; p < len(sh.buckets) {
		return p
	}
	return 0
}

// find returns the bucket and the cell of a block, or nil.
func (sh *shard) find(at place) (*bucket, int) {
	if len(sh.buckets) == 0 {
		return nil, 0
	}
	p := sh.home(at)
	for range sh.buckets { // blocks may have passed all of them
		b := &sh.buckets[p]
		for c := range bucketCells {
			if b.low[c] == uint32(at) && b.has(c, at) {
				return b, c
			}
		}
		if b.passed() == 0 {
			return nil, 0
		}
		p = sh.next(p)
	}
	return nil, 0
}

// view returns the holders of a cell: the memory itself, not a copy.
func (sh *shard) view(b *bucket, c int) []holder {
	if b.pooled(c) {
		return sh.pool.held(b.h[c])
	}
	return b.h[c : c+1]
}

// search returns where slot s is in v, or where it would go.
func search(v []holder, s Slot) (int, bool) {
	lo, hi := 0, len(v)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); v[mid].slot() < s {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(v) && v[lo].slot() == s
}

// update sets and clears mark bits of holder s of a block, making or removing
// holder and cell as needed, and returns the marks it had. ok is false if the
// budget refused the memory; then nothing changed.
func (sh *shard) update(at place, s Slot, set, clear holder, b *common) (prior holder, ok bool) {
	bu, c := sh.find(at)
	var v []holder
	if bu != nil {
		v = sh.view(bu, c)
	}
	j, held := search(v, s)
	if held {
		prior = v[j] & markMask
	}
	marks := (prior | set) &^ clear
	if marks&onHBM != 0 {
		marks &^= promised
	}
	h := holder(s)<<markBits | marks
	switch {
	case held && marks != 0:
		if v[j] != h { // others may have the line, and need not lose it
			v[j] = h
		}
		return prior, true
	case held:
		sh.remove(bu, c, j, b)
		sh.shrink(b)
		return prior, true
	case marks == 0:
		return 0, true
	case bu != nil:
		ok = sh.insert(bu, c, j, h, b)
	default:
		ok = sh.add(at, h, b)
	}
	if ok {
		sh.holders++
	} else {
		b.refused.Add(1)
	}
	return 0, ok
}

// add makes a cell for a block that has none.
func (sh *shard) add(at place, h holder, b *common) bool {
	if 100*(int(sh.keys)+1) > maxFill*len(sh.buckets) {
		if !sh.resize(larger(len(sh.buckets)), b) {
			return false
		}
	}
	sh.put(at, h)
	sh.keys++
	return true
}

// larger returns how many buckets a table of n gets that is full, at least. Those of
// many blocks grow by little, so that little of them is empty: with what the
// allocator adds, a block takes no more than 16 B.
func larger(n int) int {
	if n < 32 {
		return n + n/2 + 2
	}
	return n + n/8
}

// put puts a block where there is room for it.
func (sh *shard) put(at place, h holder) {
	for p := sh.home(at); ; p = sh.next(p) {
		b := &sh.buckets[p]
		if c := b.vacancy(); c >= 0 {
			b.put(c, at, h)
			return
		}
		b.pass(true)
	}
}

// insert makes h the j-th holder of a cell that has some.
func (sh *shard) insert(bu *bucket, c, j int, h holder, b *common) bool {
	ref, n := bu.h[c], len(sh.view(bu, c))
	if !bu.pooled(c) || n == len(sh.pool.room(ref)) {
		grown, ok := sh.alloc(n+1, b)
		if !ok {
			return false
		}
		copy(sh.pool.room(grown), sh.view(bu, c)) // alloc may have moved what it shows
		if bu.pooled(c) {
			sh.free(ref)
		}
		ref, bu.h[c] = grown, grown
	}
	room := sh.pool.room(ref)
	copy(room[j+1:n+1], room[j:n])
	room[j] = h
	sh.pool.setCount(ref, n+1)
	return true
}

// remove drops the j-th holder of a cell, and the cell with its last one.
func (sh *shard) remove(bu *bucket, c, j int, b *common) {
	sh.holders--
	if !bu.pooled(c) {
		sh.vacate(bu, c)
		return
	}
	ref := bu.h[c]
	v := sh.pool.held(ref)
	copy(v[j:], v[j+1:])
	n := len(v) - 1
	sh.pool.setCount(ref, n)
	if n == 1 {
		bu.h[c] = v[0]
		sh.free(ref)
	} else if classOf(n)+3 <= sh.pool.class(ref) {
		if less, ok := sh.alloc(n, b); ok {
			copy(sh.pool.room(less), sh.pool.held(ref))
			sh.pool.setCount(less, n)
			bu.h[c] = less
			sh.free(ref)
		}
	}
}

// vacate empties a cell: the buckets that its block passed have one less.
func (sh *shard) vacate(bu *bucket, c int) {
	for p := sh.home(bu.place(c)); &sh.buckets[p] != bu; p = sh.next(p) {
		sh.buckets[p].pass(false)
	}
	bu.h[c] = 0
	sh.keys--
}

// shrink gives memory back once most cells are empty, and all of it, but for two
// buckets at most, once all are.
func (sh *shard) shrink(b *common) {
	n := len(sh.buckets)
	if n > 2 && int(sh.keys) < n {
		sh.resize(int(sh.keys)/3+1, b)
	}
	if sh.keys == 0 && sh.pool != nil {
		b.charge(-4 * int64(cap(sh.pool)))
		sh.pool = nil
	}
}

// resize moves the blocks to n buckets, n > 0, or to so many more as the
// allocator gives away with these.
func (sh *shard) resize(n int, b *common) bool {
	old, grown := sh.buckets, append([]bucket(nil), make([]bucket, n)...)
	n = cap(grown)
	if !b.charge(bucketBytes * int64(n-len(old))) {
		return false
	}
	sh.buckets = grown[:n]
	b.heads[sh.no].where.Store(&sh.buckets[0])
	b.heads[sh.no].count.Store(int64(n))
	for i := range old {
		for c, h := range &old[i].h {
			if h != 0 {
				sh.put(old[i].place(c), h)
			}
		}
	}
	return true
}

// sweep removes the holders whose slot isn't open from n buckets, from the
// p-th on.
func (sh *shard) sweep(p, n int, slots *slotTable, b *common) {
	for i := p; i < min(p+n, len(sh.buckets)); i++ {
		bu := &sh.buckets[i]
		for c := range bucketCells {
			for bu.h[c] != 0 {
				j := slices.IndexFunc(sh.view(bu, c), func(h holder) bool { return !slots.state(h.slot()).open() })
				if j < 0 {
					break
				}
				sh.remove(bu, c, j, b)
			}
		}
	}
}
