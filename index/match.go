package index

import (
	"math/bits"
	"slices"

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
// prefix of the prompt that it can use, and returns it. keys are the prompt's
// blocks of group 0, chained from its root. On a slot with windowed groups a
// prefix is usable only if these have what they need at its end (SetGroups).
// The order of the hits depends on the contents only. Match allocates nothing
// but what dst needs to grow.
//
// A call sees each block at one moment, but not all blocks at the same; and of
// slots whose changes all vouched for it (Change.Whole), not all blocks.
func (x *Index) Match(keys []kv.Key, dst []Hit) []Hit {
	if len(keys) == 0 {
		return dst
	}
	for _, i := range [...]int{0, bothGrow, len(keys) - 1} {
		x.fetch(keys[min(i, len(keys)-1)])
	}
	m := matcher{slots: x.slots.Load()}
	first := len(dst)
	dst = x.matchFirst(&m, keys[0], dst)
	m.live = dst[first:]
	x.matchRest(&m, keys)
	m.catchUp()
	for i := range dst[first:] {
		h := &dst[first+i]
		h.Run.settle()
		h.Promised.settle()
	}
	if m.windowed {
		usable := x.cutToWindows(m.slots, keys, dst[first:])
		return dst[:first+len(usable)]
	}
	return dst
}

// matchRest goes on from the second block. While all live hits are in HBM on
// slots whose HBM is whole, a block at which all of them still are stands for
// those before it, so it leaps to where the first of the hits ends. The block
// behind that end, and all of them on other slots, it looks at one by one.
func (x *Index) matchRest(m *matcher, keys []kv.Key) {
	l := newLeaps(len(keys))
	for i := 1; i < len(keys) && len(m.live) > 0; {
		if !m.plain {
			x.fetch(keys[min(i+4, len(keys)-1)])
			x.matchNext(m, keys[i], 0)
			i++
			continue
		}
		j := l.next(i)
		for _, ahead := range l.ahead(i, j) {
			x.fetch(keys[max(0, min(ahead, len(keys)-1))])
		}
		if !x.matchNext(m, keys[j], j-i) {
			l.fail(j)
			continue
		}
		i = j + 1
		l.made(i)
	}
}

// leaps is a search for the first block that not all hits have: by leaps that go
// farther each time, then by halves. It is looked for from both ends of the prompt
// in turn, since most are held to near their end, or hardly at all; once some hit
// has ended in the prompt's second half, from there, since others mostly follow
// closely.
type leaps struct {
	n      int
	failed int  // a leap to there did; n: none
	near   int  // how far the next from the beginning goes
	far    int  // how far from the end the next from there does
	back   bool // the next is from the end
	grows  int  // how many times as far leaps go each time
	halve  bool
}

const (
	// The first leap from the end leaves out so many blocks: a turn of a
	// conversation.
	firstFar = 32
	bothGrow = 4
)

func newLeaps(n int) leaps {
	return leaps{n: n, failed: n, near: bothGrow, far: 1, back: true, grows: bothGrow}
}

// next returns to which block to leap from the i-th, that one included.
func (l *leaps) next(i int) int {
	switch {
	case l.failed <= i:
		return i
	case l.halve:
		return i + (l.failed-i)/2
	case l.back:
		return max(i, l.failed-l.far)
	}
	return min(i+l.near, l.failed) - 1
}

// ahead returns where the leap after that from the i-th block to the j-th may go:
// if that is made, and if it fails.
func (l *leaps) ahead(i, j int) [2]int {
	switch {
	case l.halve:
		return [2]int{j + (l.failed-j)/2, i + (j-i)/2}
	case l.back:
		return [2]int{j + (l.failed-j)/2, i + l.near - 1}
	case l.far > 0:
		return [2]int{l.failed - l.far, i + l.near/2}
	}
	return [2]int{j + l.grows*l.near, i + l.near/2}
}

// fail notes that a leap to a block failed.
func (l *leaps) fail(at int) {
	l.halve = l.halve || !l.back
	if l.back {
		l.far = max(firstFar, l.grows*l.far)
	}
	l.failed, l.back = at, !l.back
}

// made notes that all hits have the blocks before the i-th.
func (l *leaps) made(i int) {
	switch {
	case i > l.failed && 2*i < l.n:
		*l = newLeaps(l.n)
	case i > l.failed:
		*l = leaps{n: l.n, failed: l.n, near: 1, grows: 2}
	case l.halve:
	case l.back:
		l.halve = true
	default:
		l.near, l.back = l.grows*l.near, l.far > 0
	}
}

// fetch makes the processor fetch where a block of group 0 is looked for.
func (x *Index) fetch(k kv.Key) {
	sh, at := x.at(0, k)
	sh.fetch(at)
}

// matcher is the state of one Match: live are the hits whose promised run has
// no end yet, sorted by slot; ended ones lie behind them.
//
// Neighbouring blocks mostly have the same holders, on the same tiers, and
// then every live run just gets one longer. So runs are not touched while the
// holders stay the same as last: repeats says how many blocks they lag behind.
type matcher struct {
	slots    *slotTable
	live     []Hit
	windowed bool // some of the hits' slots have groups
	plain    bool // all live runs are in HBM so far, nothing of them only promised, and the slots' HBM is whole
	done     int  // blocks that the live runs cover
	repeats  int
	last     [lastHolders]holder
	n        int // holders in last; 0 if the last block had too many for it
}

const lastHolders = 128

func (x *Index) matchFirst(m *matcher, k kv.Key, dst []Hit) []Hit {
	sh, at := x.at(0, k)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	b, c := sh.find(at)
	if b == nil {
		return dst
	}
	v := sh.view(b, c)
	first := len(dst)
	for _, h := range v {
		s := m.slots.state(h.slot())
		if !s.open() {
			continue
		}
		hit := Hit{Slot: h.slot()}
		hit.Run.extend(h.tiers(), s.lower())
		if hit.Promised.extend(h.hoped(), s.lower()) {
			dst = append(dst, hit)
			m.windowed = m.windowed || s&windowed != 0
		}
	}
	m.done = 1
	m.remember(v)
	m.live = dst[first:]
	m.judge()
	return dst
}

// matchNext extends the live hits by the next block k, or, after a leap, by the
// leapt blocks before it too. It returns false if the leap can't be made, for
// some hit may end on the way.
func (x *Index) matchNext(m *matcher, k kv.Key, leapt int) bool {
	sh, at := x.at(0, k)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	b, c := sh.find(at)
	if b == nil {
		if leapt == 0 {
			m.catchUp()
			m.live = nil
		}
		return leapt == 0
	}
	v := sh.view(b, c)
	switch {
	case m.same(v):
		m.repeats += leapt + 1
	case leapt == 0:
		m.catchUp()
		m.remember(v)
		m.extend(v)
		m.judge()
	case m.allInHBM(v):
		m.repeats += leapt + 1
		m.remember(v)
	default:
		return false
	}
	return true
}

// judge finds out whether the live hits are plain.
func (m *matcher) judge() {
	m.plain = !slices.ContainsFunc(m.live, func(h Hit) bool {
		return h.Run.Len() != m.done || h.Lower > 0 || h.Promised.Lower > 0 || m.slots.states[h.Slot]&holed != 0
	})
}

// allInHBM reports whether all live hits are among the holders of a block, in
// HBM.
func (m *matcher) allInHBM(v []holder) bool {
	j := 0
	for i := range m.live {
		for j < len(v) && v[j].slot() < m.live[i].Slot {
			j++
		}
		if j == len(v) || v[j].slot() != m.live[i].Slot || v[j]&onHBM == 0 {
			return false
		}
	}
	return true
}

func (m *matcher) remember(v []holder) {
	m.n = 0
	if len(v) <= lastHolders {
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

// catchUp brings the live runs up to the last block seen.
func (m *matcher) catchUp() {
	if m.repeats == 0 {
		return
	}
	for i := range m.live {
		h := &m.live[i]
		if h.Run.Len() == m.done {
			h.Run.repeat(m.repeats)
		}
		h.Promised.repeat(m.repeats)
	}
	m.done += m.repeats
	m.repeats = 0
}

// extend goes through the live hits and the holders of the next block side by
// side, both sorted by slot, and keeps the hits that get longer.
func (m *matcher) extend(v []holder) {
	kept := 0
	for i, j := 0, 0; i < len(m.live) && j < len(v); {
		h := &m.live[i]
		switch s := v[j].slot(); {
		case s < h.Slot:
			j++
			continue
		case s > h.Slot:
			i++
			continue
		}
		lower := m.slots.states[h.Slot].lower()
		if h.Run.Len() == m.done {
			h.Run.extend(v[j].tiers(), lower)
		}
		if h.Promised.extend(v[j].hoped(), lower) {
			if kept < i {
				m.live[kept], m.live[i] = m.live[i], m.live[kept]
			}
			kept++
		}
		i++
		j++
	}
	m.live = m.live[:kept]
	m.done++
}
