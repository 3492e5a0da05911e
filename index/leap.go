package index

import (
	"cmp"
	"slices"
)

// A slot whose HBM is whole has with a block all those before it. So the ends of
// its hits are searched for by leaps, of all hits of such slots together: a block
// that is looked at parts them into those that have it and those that end before.

// gap is where some hits end: they all have the blocks before lo, and none has
// block hi. Prompts are mostly held to near their end, by few, or hardly at all,
// so leaps go from both ends in turn, farther each time, until the ends are
// between two leaps; then by halves.
type gap struct {
	lo, hi int
	near   int  // how many blocks the next leap from lo goes
	far    int  // how many before hi the next from there does
	back   bool // the next is from hi
	halve  bool
	marked bool // some may have marks at hi
}

const (
	// firstNear is how many blocks the first leap from the beginning goes.
	firstNear = 4
	// firstFar is how many blocks from the end the second leap from there goes: a
	// turn of a conversation. The first goes to the last block.
	firstFar = 32
	growth   = 4
)

func newGap(blocks int) gap { return gap{lo: 1, hi: blocks, near: firstNear, far: 1, back: true} }

// next returns the block to look at next.
func (g *gap) next() int {
	switch {
	case g.halve:
		return g.lo + (g.hi-g.lo)/2
	case g.back:
		return max(g.lo, g.hi-g.far)
	}
	return min(g.lo+g.near, g.hi) - 1
}

// above returns the gap of those that have block i, which next returned.
func (g gap) above(i int) gap {
	g.lo, g.halve = i+1, g.halve || g.back
	g.near, g.back = growth*g.near, true
	return g
}

// below returns the gap of those that don't have it.
func (g gap) below(i int) gap {
	g.hi, g.halve = i, g.halve || !g.back
	g.far, g.back = max(firstFar, growth*g.far), false
	return g
}

// fetch makes the processor fetch the block that is looked at next.
func (m *matcher) fetch(g *gap) {
	if g.lo < g.hi {
		m.x.fetchKey(m.keys[g.next()])
	}
}

// leap finds the ends of hits on slots whose HBM is whole. There is room for all of
// them in spare.
func (m *matcher) leap(list, spare []live, g gap) {
	for len(list) > 0 {
		if g.lo == g.hi {
			m.end(list, g.lo)
			return
		}
		i := g.next()
		above, below := g.above(i), g.below(i)
		m.fetch(&above)
		m.fetch(&below)
		n := 0
		n, below.marked = m.part(list, spare, i, g.marked)
		switch n {
		case 0:
			g = below
		case len(list):
			g = above
		default:
			m.leap(list[n:], spare, below)
			m.n = 0 // what is remembered now needn't have the others
			list, g = list[:n], above
		}
	}
}

// end ends the HBM run of hits before block n.
func (m *matcher) end(list []live, n int) {
	for _, l := range list {
		h := &m.hits[l.at]
		h.Run.HBM, h.Promised.HBM = n, n
		m.goOn = m.goOn || l.marks() != 0
	}
}

// descend walks on with those of the hits that leapt which are on a lower tier, or
// promised, where their HBM run ends: with all of them together, from the first of
// these ends on.
func (m *matcher) descend(leapt []live) {
	if !m.goOn {
		return
	}
	on, from := leapt[:0], len(m.keys)
	for _, l := range leapt {
		if l.marks() != 0 {
			from = min(from, m.hits[l.at].Run.HBM)
			on = append(on, live{l.unmarked(), l.at})
		}
	}
	slices.SortFunc(on, func(a, b live) int { return cmp.Compare(a.holder, b.holder) })
	for _, l := range on {
		h := &m.hits[l.at]
		h.Run.HBM, h.Promised.HBM = from, from
	}
	m.n = 0
	m.walk(on, from)
}

// part looks at block i and puts those of a list that have it in HBM before the
// others, each still sorted. It returns how many they are. Of the others it notes
// their marks there, if they have any. marked is whether some of the list may have
// marks now, and then of the others.
func (m *matcher) part(list, spare []live, i int, marked bool) (n int, others bool) {
	sh, at := m.x.at(0, m.keys[i])
	sh.mu.rlock(&m.x.bed)
	defer sh.mu.runlock(&m.x.bed)
	b, c := sh.find(at)
	if b == nil {
		if marked {
			unmark(list)
		}
		return 0, false
	}
	switch v := sh.view(b, c); {
	case m.same(v):
		return len(list), false
	case 8*len(v) <= len(list):
		return partFew(list, v, marked)
	default:
		if n = partMany(list, spare, v); n == len(list) {
			m.remember(v)
		}
		return n, true
	}
}

// partMany is part by going through both lists side by side.
func partMany(list, spare []live, v []holder) (n int) {
	others := spare[:0]
	j := 0
	for _, l := range list {
		s := l.unmarked()
		for j < len(v) && v[j].unmarked() < s {
			j++
		}
		switch {
		case j == len(v) || v[j].unmarked() != s:
			others = append(others, live{s, l.at})
		case v[j]&onHBM == 0:
			others = append(others, live{v[j], l.at})
		default:
			list[n] = l
			n++
		}
	}
	copy(list[n:], others)
	return n
}

// partFew is part by looking for each of v in a list that is much longer.
func partFew(list []live, v []holder, marked bool) (n int, some bool) {
	for _, h := range v {
		if at, ok := searchLive(list[n:], h); ok && h&onHBM != 0 {
			l := list[n+at]
			copy(list[n+1:n+at+1], list[n:])
			list[n] = l
			n++
		}
	}
	others := list[n:]
	if marked {
		unmark(others)
	}
	for _, h := range v {
		if h&onHBM != 0 {
			continue
		}
		if at, ok := searchLive(others, h); ok {
			others[at].holder, some = h, true
		}
	}
	return n, some
}

// searchLive returns where the slot of h is in a list.
func searchLive(list []live, h holder) (int, bool) {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); list[mid].slot() < h.slot() {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(list) && list[lo].slot() == h.slot()
}

func unmark(list []live) {
	for i := range list {
		list[i].holder = list[i].unmarked()
	}
}
