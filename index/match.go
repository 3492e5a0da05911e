package index

import (
	"math/bits"
	"slices"

	"github.com/rhizome-router/rhizome/index/prefetch"
	"github.com/rhizome-router/rhizome/kv"
)

// Run is how far a prompt is found on a slot, in blocks: the leading HBM
// blocks, then Lower blocks that are all on the one lower tier Tier, the tier
// that reaches farthest (of equals, the fastest). Tier means nothing while
// Lower is 0. A block found on neither ends the run.
type Run struct {
	HBM, Lower int
	Tier       kv.Tier
}

// Len returns HBM + Lower.
func (r Run) Len() int { return r.HBM + r.Lower }

// extend adds a block that is on tiers m to a run, if the tier rule lets it go
// on. While a run is being extended, Tier is not a tier but the mask of those
// that hold all of Lower; settle ends that.
func (r *Run) extend(m, lower kv.TierMask) bool {
	if r.Lower == 0 && m.Has(kv.HBM) {
		r.HBM++
		return true
	}
	m &= lower
	if r.Lower > 0 {
		m &= kv.TierMask(r.Tier)
	}
	if m == 0 {
		return false
	}
	r.Tier = kv.Tier(m)
	r.Lower++
	return true
}

// repeat extends a run by n blocks that are where its last one is.
func (r *Run) repeat(n int) {
	if r.Lower == 0 {
		r.HBM += n
	} else {
		r.Lower += n
	}
}

func (r *Run) settle() {
	r.Tier = kv.Tier(bits.TrailingZeros8(uint8(r.Tier)) & 7)
	if r.Lower == 0 {
		r.Tier = kv.HBM
	}
}

// Hit is what a slot holds of a prompt.
type Hit struct {
	Slot Slot
	Run  // confirmed by events
	// Promised is the run if every promise comes true: a promised block
	// counts as one in HBM. It is never shorter than Run, and equal to it
	// where nothing is promised.
	Promised Run
}

// Match appends to dst a Hit for each slot that holds, or is promised, a
// prefix of the prompt that it can use, sorted by slot, and returns it. keys are
// the prompt's blocks of group 0, chained from its root. On a slot with windowed
// groups a prefix is usable only if these have what they need at its end
// (SetGroups). Match allocates nothing but what dst needs to grow.
//
// A call sees each block at one moment, but not all blocks at the same; and of
// slots whose changes all vouched for it (Change.Whole), not all blocks.
func (x *Index) Match(keys []kv.Key, dst []Hit) []Hit {
	if len(keys) == 0 {
		return dst
	}
	for _, i := range [...]int{0, len(keys) - 1, firstNear} {
		x.fetchKey(keys[min(i, len(keys)-1)])
	}
	m := matcher{x: x, keys: keys, slots: x.slots.Load()}
	var few [2][fewHolders]live
	first := len(dst)
	dst, found, many := m.begin(x, dst, lists{few[0][:0], few[1][:0]})
	m.hits = dst[first:]
	if len(found.others) > 0 {
		m.walk(found.others, 1)
	}
	m.leap(found.whole, found.others, newGap(len(keys)))
	m.descend(found.whole)
	if many != nil {
		x.lists.Put(many)
	}
	if m.windowed {
		usable := x.cutToWindows(m.slots, keys, m.hits)
		return dst[:first+len(usable)]
	}
	return dst
}

// fetchKey makes the processor fetch where a block of group 0 is looked for.
func (x *Index) fetchKey(k kv.Key) { prefetch.ToLock(x.lines(x.hash(0, k))) }

// matcher is the state of one Match. The hits whose end isn't known yet are in
// lists of live ones, sorted by slot: those that leap (leap.go), and those that
// are looked at block by block, because their slot's HBM isn't whole, or they
// go on to a lower tier or to blocks that are only promised.
type matcher struct {
	x        *Index
	keys     []kv.Key
	slots    *slotTable
	hits     []Hit
	windowed bool // some of the hits' slots have groups
	goOn     bool // some that leapt may go on where their HBM run ends

	// last are the holders of a block seen before: of the one before this, or of
	// one that all that leap have in HBM.
	last [fewHolders]holder
	n    int // holders in last; 0 if there is none, or it had too many
}

// live is a hit whose end isn't known yet.
type live struct {
	holder        // the slot, and, if it leaps, its marks at the first block known not to be in its HBM
	at     uint32 // in matcher.hits
}

// fewHolders is for how many holders of the first block there is room on the
// stack.
const fewHolders = 128

// lists are those that leap and those that don't.
type lists struct{ whole, others []live }

// begin appends the hits of the first block to dst, and to two lists, which are few,
// or, where that has no room, those of many, to be used again.
func (m *matcher) begin(x *Index, dst []Hit, few lists) (hits []Hit, found lists, many *lists) {
	sh, at := x.at(0, m.keys[0])
	sh.mu.rlock(&x.bed)
	defer sh.mu.runlock(&x.bed)
	b, c := sh.find(at)
	if b == nil {
		return dst, few, nil
	}
	v := sh.view(b, c)
	found = few
	if len(v) > fewHolders {
		if many, _ = x.lists.Get().(*lists); many == nil {
			many = new(lists)
		}
		many.whole, many.others = slices.Grow(many.whole, len(v)), slices.Grow(many.others, len(v))
		found = *many
	}
	first, n := len(dst), 0
	dst = slices.Grow(dst, len(v))
	hits = dst[first : first+len(v)]
	clear(hits)
	for _, h := range v {
		s := m.slots.state(h.slot())
		switch {
		case !s.open():
			continue
		case h&onHBM != 0 && s&holed == 0:
			found.whole = append(found.whole, live{h.unmarked(), uint32(n)})
		case hits[n].extend(h, s.lower(), 0):
			found.others = append(found.others, live{h.unmarked(), uint32(n)})
		default:
			continue
		}
		hits[n].Slot = h.slot()
		m.windowed = m.windowed || s&windowed != 0
		n++
	}
	m.remember(v)
	return dst[:first+n], found, many
}

// extend adds a block to a hit that has n blocks, and returns false if it ends
// before.
func (h *Hit) extend(marks holder, lower kv.TierMask, n int) bool {
	if h.Run.Len() == n {
		h.Run.extend(marks.tiers(), lower)
	}
	return h.Promised.extend(marks.hoped(), lower)
}

// walk finds the ends of hits that all have the blocks before the i-th, looking
// at one block after the other. Neighbouring blocks mostly have the same holders,
// on the same tiers, and then every run just gets one longer. So runs are not
// touched while the holders stay the same.
func (m *matcher) walk(list []live, i int) {
	done := i // blocks that the runs cover
	for ; i < len(m.keys) && len(list) > 0; i++ {
		m.x.fetchKey(m.keys[min(i+4, len(m.keys)-1)])
		list, done = m.step(list, i, done)
	}
	m.finish(list, done, i)
	m.n = 0
}

// step takes to block i hits whose runs cover done blocks, and returns those that
// go on, and what their runs cover.
func (m *matcher) step(list []live, i, done int) ([]live, int) {
	sh, at := m.x.at(0, m.keys[i])
	sh.mu.rlock(&m.x.bed)
	defer sh.mu.runlock(&m.x.bed)
	b, c := sh.find(at)
	if b == nil {
		m.finish(list, done, i)
		return nil, i
	}
	v := sh.view(b, c)
	if m.same(v) {
		return list, done
	}
	m.remember(v)
	m.repeat(list, done, i)
	kept, j := 0, 0
	for _, l := range list {
		for j < len(v) && v[j].unmarked() < l.holder {
			j++
		}
		h := &m.hits[l.at]
		if j < len(v) && v[j].unmarked() == l.holder && h.extend(v[j], m.slots.states[h.Slot].lower(), i) {
			list[kept] = l
			kept++
			continue
		}
		h.settle()
	}
	return list[:kept], i + 1
}

// repeat extends runs of done blocks to n blocks that are alike.
func (m *matcher) repeat(list []live, done, n int) {
	if done == n {
		return
	}
	for _, l := range list {
		h := &m.hits[l.at]
		if h.Run.Len() == done {
			h.Run.repeat(n - done)
		}
		h.Promised.repeat(n - done)
	}
}

// finish is repeat for hits that end there.
func (m *matcher) finish(list []live, done, n int) {
	m.repeat(list, done, n)
	for _, l := range list {
		m.hits[l.at].settle()
	}
}

func (h *Hit) settle() {
	h.Run.settle()
	h.Promised.settle()
}

func (m *matcher) remember(v []holder) {
	m.n = 0
	if len(v) <= len(m.last) {
		m.n = copy(m.last[:], v)
	}
}

// same reports whether v equals the holders remembered.
func (m *matcher) same(v []holder) bool {
	if len(v) != m.n {
		return false
	}
	const step = 8 // whole arrays compare several times faster than elements
	i := 0
	for ; i+step <= len(v); i += step {
		if *(*[step]holder)(v[i:]) != *(*[step]holder)(m.last[i:]) {
			return false
		}
	}
	for ; i < len(v); i++ {
		if v[i] != m.last[i] {
			return false
		}
	}
	return true
}
