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
	for i := 0; i < min(len(keys), lookahead); i = 2*i + 1 {
		x.fetch(keys[i])
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
// those before it, so it leaps: each time twice as far, until a leap fails; then
// by halves to where the first hit ends. That block, and all of them on other
// slots, it looks at one by one.
func (x *Index) matchRest(m *matcher, keys []kv.Key) {
	failed := len(keys) // a leap to there did
	for i, step := 1, 1; i < len(keys) && len(m.live) > 0; {
		j := i
		switch {
		case !m.plain:
			x.fetch(keys[min(i+4, len(keys)-1)])
		case failed < len(keys):
			j = i + (failed-i)/2
		default:
			j = min(i+step-1, len(keys)-1)
			x.fetch(keys[min(j+2*step, len(keys)-1)])
		}
		if !x.matchNext(m, keys[j], j-i) {
			failed = j
			continue
		}
		if i, step = j+1, min(2*step, len(keys)); i > failed {
			failed, step = len(keys), 1
		}
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
