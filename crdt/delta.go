package crdt

import (
	"math"
	"slices"
)

// Delta is what leads a copy of a page from one position to another.
type Delta struct {
	// Whole: the copy begins anew, whatever it holds. Otherwise it must be at
	// From, or further.
	Whole    bool
	From, To Position
	Gone     []GoneKey   // by version
	Items    []DeltaItem // by version
}

// DeltaItem is a value as it travels: with its age instead of an instant.
type DeltaItem struct {
	Key       string
	Value     []byte
	Version   uint64
	Age       int64 // nanoseconds since it was put
	Remaining int64 // nanoseconds of its life left, 0 or more; -1: it has no end
}

// deltaItemBytes is what an item or a deletion takes besides key and value,
// about.
const deltaItemBytes = 16

// Since returns what a copy at a position needs, as of now: all deletions, and
// then values. Where these are more than about maxBytes, it is the first of
// them, and the next delta goes on from its To.
func (p *Page) Since(now int64, at Position, maxBytes int) Delta {
	d := Delta{From: at, To: p.at}
	if at.Deleted < p.floor || at.Version > p.at.Version || at.Deleted > p.at.Deleted {
		d.Whole, d.From = true, Position{}
	} else {
		for _, g := range p.goneAfter(at.Deleted) {
			if p.items[g.Key] == nil { // else its present value says so
				d.Gone = append(d.Gone, g)
			}
		}
	}
	bytes := 0
	for it := p.after(d.From.Version); it != &p.order; it = it.after {
		if bytes >= maxBytes {
			d.To.Version = it.Version - 1
			break
		}
		d.Items = append(d.Items, it.sent(now))
		bytes += deltaItemBytes + len(it.Key) + len(it.Value)
	}
	return d
}

// after returns the first item put after a version, from whichever end it is
// nearer to by its number.
func (p *Page) after(version uint64) *PageItem {
	it := &p.order
	if 2*(p.at.Version-version) < uint64(len(p.items)) {
		for it.before != &p.order && it.before.Version > version {
			it = it.before
		}
		return it
	}
	for it = it.after; it != &p.order && it.Version <= version; {
		it = it.after
	}
	return it
}

func (p *Page) goneAfter(version uint64) []GoneKey {
	i, _ := slices.BinarySearchFunc(p.gone, version, func(g GoneKey, v uint64) int {
		if g.Version <= v {
			return -1
		}
		return 1
	})
	return p.gone[i:]
}

func (it *PageItem) sent(now int64) DeltaItem {
	d := DeltaItem{Key: it.Key, Value: it.Value, Version: it.Version, Age: max(0, now-it.At), Remaining: -1}
	if it.Until != math.MaxInt64 {
		d.Remaining = max(0, it.Until-now)
	}
	return d
}

// Merge takes a delta into a copy. It is Applied, a Duplicate of what the copy
// holds, Pending if the copy is not as far as the delta begins, or Overflow if
// it has more values than the copy may hold; only when Applied the copy
// changed. A whole page that comes in parts takes it back to the first of them. changed, if any, gets each value that came, and each that went with
// no value. The copy keeps the delta's memory.
func (p *Page) Merge(now int64, d *Delta, changed func(key string, it *PageItem)) Outcome {
	switch {
	case d.To.Deleted < p.at.Deleted, d.To.Deleted == p.at.Deleted && d.To.Version <= p.at.Version:
		return Duplicate // or too old: what it names may be among the deletions done here
	case !d.Whole && (d.From.Version > p.at.Version || d.From.Deleted > p.at.Deleted):
		return Pending
	case len(d.Items) > p.limit || !d.Whole && len(p.items)+len(d.Items)-len(d.Gone) > p.limit && p.grownBy(d) > p.limit:
		return Overflow
	}
	if changed == nil {
		changed = func(string, *PageItem) {}
	}
	before := p.at
	if d.Whole {
		p.begin(d, changed)
		before = Position{}
	}
	for i := range d.Items {
		it := &d.Items[i]
		if it.Version <= before.Version {
			continue
		}
		n := &PageItem{Key: it.Key, Value: it.Value, Version: it.Version, At: now - it.Age, Until: math.MaxInt64}
		if it.Remaining >= 0 && now < math.MaxInt64-it.Remaining {
			n.Until = now + it.Remaining
		}
		p.set(n)
		changed(it.Key, n)
	}
	for _, g := range d.Gone {
		if g.Version <= before.Deleted {
			continue
		}
		if it := p.items[g.Key]; it != nil && it.Version < g.Version {
			p.remove(it)
			changed(g.Key, nil)
		}
		p.gone = append(p.gone, g)
	}
	p.at = Position{max(before.Version, d.To.Version), max(before.Deleted, d.To.Deleted)}
	p.forgetGone()
	return Applied
}

// grownBy is how many values there are once a delta is taken.
func (p *Page) grownBy(d *Delta) int {
	n := len(p.items)
	for i := range d.Items {
		if p.items[d.Items[i].Key] == nil {
			n++
		}
	}
	for _, g := range d.Gone {
		if it := p.items[g.Key]; it != nil && it.Version < g.Version {
			n--
		}
	}
	return n
}

// begin empties the copy for a whole page; what the delta names again is not
// reported as gone.
func (p *Page) begin(d *Delta, changed func(string, *PageItem)) {
	old := p.items
	p.items = make(map[string]*PageItem, len(d.Items))
	p.order.before, p.order.after = &p.order, &p.order
	p.gone, p.floor, p.sum, p.at = nil, d.To.Deleted, 0, Position{}
	named := make(map[string]bool, len(d.Items))
	for i := range d.Items {
		named[d.Items[i].Key] = true
	}
	for key := range old { // order-free: each is reported once, to a receiver that keeps a set
		if !named[key] {
			changed(key, nil)
		}
	}
}
