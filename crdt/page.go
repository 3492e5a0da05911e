package crdt

import (
	"math"

	"github.com/zeebo/xxh3"
)

// Page is what one incarnation of a replica says of one matter (its loads, the
// workers it discovered, …): values by key. Only that replica writes it, by Put
// and Delete; the others' copies follow by Merge. Each change has a number, the
// page's version, so a copy needs just what changed after the one it is at, from
// anyone who is further, and copies of equal position are equal.
//
// Values are opaque. They age: a copy knows how old a value is from how old it
// was when it was sent, whatever the replicas' clocks say. They may have a
// life, after which copies hide them; the writer deletes them. Instants are
// nanoseconds on the caller's monotonic clock.
type Page struct {
	limit int
	at    Position
	items map[string]*PageItem
	// By version, both least first: what is there, in a ring around this item,
	// and what was deleted.
	order PageItem
	gone  []GoneKey
	floor uint64 // the deletions up to this version are forgotten
	sum   uint64
	ends  int64 // no life ends before
}

// Position is how far a copy of a page is.
type Position struct {
	Version uint64 // it holds the values put up to this version that were not put again since
	// Deleted: the deletions up to this version are done. It is more than Version
	// while a page comes in parts, and no less ever.
	Deleted uint64
}

// Complete reports whether the copy is what the page was at one time.
func (p Position) Complete() bool { return p.Version == p.Deleted }

// PageItem is one value on a page. It is not to be changed.
type PageItem struct {
	Key     string
	Value   []byte
	Version uint64 // of the page, when it was put
	At      int64  // when it was put
	Until   int64  // end of its life; math.MaxInt64 if it has none

	before, after *PageItem
}

// GoneKey is a deletion: of a key, which may have been put again since, by the
// change of that number.
type GoneKey struct {
	Key     string
	Version uint64
}

// maxGone bounds the deletions that a page remembers: a copy further behind
// gets the whole page.
const maxGone = 4096

// NewPage returns an empty page of at most limit values; when one more is put,
// the one put longest ago is deleted.
func NewPage(limit int) *Page {
	p := &Page{limit: limit, items: make(map[string]*PageItem), ends: math.MaxInt64}
	p.order.before, p.order.after = &p.order, &p.order
	return p
}

// At returns how far the page, or this copy of it, is.
func (p *Page) At() Position { return p.at }

// Len returns the number of values, those past their life included.
func (p *Page) Len() int { return len(p.items) }

// Digest sums up keys, values and versions: copies of equal position that are
// complete have equal ones.
func (p *Page) Digest() uint64 { return p.sum }

// Put writes a value at an instant; life is how long it is good for, 0 for
// ever. The page keeps value.
func (p *Page) Put(now int64, key string, value []byte, life int64) {
	until := int64(math.MaxInt64)
	if life > 0 && now < math.MaxInt64-life {
		until = now + life
	}
	p.step()
	p.ends = min(p.ends, until)
	p.set(&PageItem{Key: key, Value: value, Version: p.at.Version, At: now, Until: until})
	if len(p.items) > p.limit {
		p.Delete(p.order.after.Key)
	}
}

// Delete takes a value off the page, if it is there.
func (p *Page) Delete(key string) {
	it := p.items[key]
	if it == nil {
		return
	}
	p.step()
	p.remove(it)
	p.gone = append(p.gone, GoneKey{key, p.at.Version})
	p.forgetGone()
}

func (p *Page) step() { p.at = Position{p.at.Version + 1, p.at.Version + 1} }

// Expire deletes the values whose life is over. Only the page's writer does.
func (p *Page) Expire(now int64) {
	if now < p.ends {
		return
	}
	p.ends = math.MaxInt64
	for it := p.order.after; it != &p.order; {
		after := it.after
		if it.Until <= now {
			p.Delete(it.Key)
		} else {
			p.ends = min(p.ends, it.Until)
		}
		it = after
	}
}

// Get returns a value that is there and alive.
func (p *Page) Get(now int64, key string) (*PageItem, bool) {
	it := p.items[key]
	if it == nil || it.Until <= now {
		return nil, false
	}
	return it, true
}

// Each calls f for every value alive, the one put longest ago first, until f
// returns false.
func (p *Page) Each(now int64, f func(*PageItem) bool) {
	for it := p.order.after; it != &p.order; it = it.after {
		if it.Until > now && !f(it) {
			return
		}
	}
}

// set puts an item at the place of its version, which is the last.
func (p *Page) set(it *PageItem) {
	if old := p.items[it.Key]; old != nil {
		p.remove(old)
	}
	p.items[it.Key] = it
	it.before, it.after = p.order.before, &p.order
	it.before.after, it.after.before = it, it
	p.sum += it.digest()
}

func (p *Page) remove(it *PageItem) {
	delete(p.items, it.Key)
	it.before.after, it.after.before = it.after, it.before
	p.sum -= it.digest()
}

func (it *PageItem) digest() uint64 {
	return xxh3.HashStringSeed(it.Key, it.Version) ^ xxh3.HashSeed(it.Value, it.Version+1)
}

func (p *Page) forgetGone() {
	if n := len(p.gone) - maxGone; n > 0 {
		p.floor = p.gone[n-1].Version
		p.gone = append(p.gone[:0], p.gone[n:]...)
	}
}
