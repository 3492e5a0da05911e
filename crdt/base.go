package crdt

import (
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// base is the state that a log of batches leads to: for each (group, engine
// hash) that the engine holds, its key and its number of copies per tier.
//
// Entries lie in pages without pointers and are found by hash and by key
// through two tables of entry numbers (table.go). The one by key is what lets
// presence be said of keys: several engine hashes may come to one key, namely
// where an engine tells apart what our keys don't (a salt it doesn't report,
// say), and the key is present as long as one of them is.
//
// Group numbers of ops are the engine's own, in which main attention may have
// any; everything else here numbers groups as package index does (ownGroup).
//
// A batch is atomic: an entry whose last copy goes stays known until the batch
// ends, so that Remove and Also make a move.
type base struct {
	counted   bool
	max       int         // entries
	truncated kv.TierMask // tiers of which nothing is taken
	main      uint16      // the engine's number of main attention; 0 until it is known
	rooted    bool        // it is known
	holes     bool        // what HBM has of group 0 isn't whole, or may not be (whole.go)
	pages     []*[pageEntries]packed
	details   map[uint32]detail // of entries that don't fit their page
	unused    uint32            // entries behind all ever used begin here
	free      uint32            // first of the entries given back, + 1
	blocks    int
	refused   uint64
	held      [kv.NumTiers]int // by tier: entries of group 0
	onTier    [kv.NumTiers]int // by tier: entries of all groups
	digest    uint64
	byHash    table
	byKey     table
	orphans   map[uint32]orphan
	waiting   map[node]uint32 // the first of the orphans that wait for a node
	emptied   []uint32        // entries that lost their last copy in this batch
}

// node names an entry as engines do.
type node struct {
	group uint16
	hash  kv.EngineHash
}

// entry is one block, unpacked. Without a key (unkeyed), val is its content and its
// orphan record says what it waits for; with one (keyed), val is the key; of
// an entry given back (vacant), the next such. A keyed one that shares its key
// with another, or once did, is a twin.
type entry struct {
	hash   kv.EngineHash
	val    uint64
	copies copies
	state  entryState
	group  uint16
}

type entryState uint8

const (
	vacant entryState = iota
	unkeyed
	keyed
	twin
)

func (e *entry) keyed() bool { return e.state >= keyed }
func (e *entry) empty() bool { return e.copies == 0 }

func (b *base) apply(ops []kv.Op, emit func(index.Change)) {
	b.fetchFree()
	for i := range ops {
		op := &ops[i]
		if op.Kind == kv.Clear {
			b.clear(op.Tiers, emit)
			continue
		}
		if op.Tier >= kv.NumTiers {
			continue
		}
		if b.truncated.Has(op.Tier) {
			continue
		}
		if op.Kind == kv.Insert && !b.rooted {
			b.main, b.rooted = op.Group, true
		}
		group := b.ownGroup(op.Group)
		switch op.Kind {
		case kv.Insert:
			b.insert(op, group, emit)
		case kv.Also:
			b.find(0, op.Hashes, func(i uint32, h kv.EngineHash) { b.also(i, group, h, op.Tier, emit) })
		case kv.Remove:
			b.find(group, op.Hashes, func(i uint32, _ kv.EngineHash) { b.less(i, op.Tier, emit) })
		}
	}
	b.purge()
}

// ownGroup maps the engine's number of a group to ours, and back: the group of
// the first Insert is main attention, 0, and trades numbers with the one that
// the engine calls 0. Before it a base holds nothing that would change its
// group, for only Inserts make something of nothing. So the mapping, like all
// of the base, follows from the log.
func (b *base) ownGroup(wire uint16) uint16 {
	switch wire {
	case b.main:
		return 0
	case 0:
		return b.main
	}
	return wire
}

func (b *base) insert(op *kv.Op, group uint16, emit func(index.Change)) {
	parent, hasParent, key, known := op.Parent, op.HasParent, op.Root, true
	before := uint32(0) // number + 1 of the block before
	if hasParent {
		key, before, known = b.keyOf(group, parent)
	}
	ahead := coming{base: b, group: group, blocks: op.Blocks, key: key, known: known}
	ahead.begin()
	for j, blk := range op.Blocks {
		at := ahead.next(j)
		if hasParent && blk.Hash == parent {
			b.refused++
			continue
		}
		if known {
			key = at.follow(key, blk.Content)
		}
		i, held := b.findAt(at.byHash, group, blk.Hash)
		if !held {
			var ok bool
			if known && len(b.waiting) == 0 {
				if i, ok = b.bear(at, blk.Hash, key, group, op.Tier, before, emit); !ok {
					b.refused++
					return
				}
				parent, hasParent, before = blk.Hash, true, i+1
				continue
			}
			if i, ok = b.create(at.byHash, group, blk.Hash); !ok {
				b.refused++
				return
			}
			if !known {
				b.orphan(i, uint64(blk.Content), orphan{parent: node{group, parent}})
			}
		}
		if group == 0 && op.Tier == kv.HBM {
			b.holes = b.holes || !known
			b.come(i, before)
		}
		if p := b.at(i); p.state() >= keyed {
			if known && kv.Key(p.val()) != key {
				b.holes = true
			}
			key, known = kv.Key(p.val()), true // once given, a key stays
		} else if known {
			b.adopt(i, key, emit)
		}
		b.more(i, op.Tier, emit)
		parent, hasParent, before = blk.Hash, true, i+1
	}
}

// bear is create, come, adopt and more at once, for a block with a key that nobody
// waits for; at is where it will be in the tables.
func (b *base) bear(at *comingBlock, hash kv.EngineHash, key kv.Key, group uint16, t kv.Tier, before uint32, emit func(index.Change)) (i uint32, ok bool) {
	if i, ok = b.take(at.byHash); !ok {
		return 0, false
	}
	byKey := at.placeOf(key, group)
	e := entry{hash: hash, val: uint64(key), copies: 1 << (8 * t), state: b.shareKey(key, group, byKey), group: group}
	b.byKey.add(i, byKey)
	b.at(i).setLink(0)
	if group == 0 && t == kv.HBM {
		b.come(i, before)
	}
	b.digest += b.sum(i, &e)
	b.store(i, &e)
	b.count(&e, t, true)
	if !b.elsewhere(i, &e, t) {
		emit(index.Change{Key: key, Group: group, Tier: t, Present: true, Whole: !b.holes})
	}
	return i, true
}

// also says that a block that group 0 knows, as entry main, is on a tier, too,
// or in another group's window.
func (b *base) also(main uint32, group uint16, h kv.EngineHash, t kv.Tier, emit func(index.Change)) {
	i := main
	if group != 0 {
		var held bool
		at := place(uint64(h), group)
		if i, held = b.findAt(at, group, h); !held {
			var ok bool
			if i, ok = b.create(at, group, h); !ok {
				b.refused++
				return
			}
			if b.at(main).state() == unkeyed {
				b.orphan(i, 0, orphan{parent: node{0, h}, same: true})
			}
		}
		if m := b.at(main); m.state() >= keyed && b.at(i).state() < keyed {
			b.adopt(i, kv.Key(m.val()), emit)
		}
	} else if t == kv.HBM && !b.at(i).on(t) {
		b.holes = true // nobody says what is before it
	}
	b.more(i, t, emit)
}

func (b *base) clear(tiers kv.TierMask, emit func(index.Change)) {
	if tiers.Has(kv.HBM) {
		b.untie()
	}
	for i := range b.unused {
		if b.at(i).state() == vacant {
			continue
		}
		for t := range kv.Tier(kv.NumTiers) {
			if tiers.Has(t) {
				if e := b.load(i); e.copies.on(t) > 0 {
					b.set(i, &e, t, 0, emit)
				}
			}
		}
	}
}

func (b *base) more(i uint32, t kv.Tier, emit func(index.Change)) {
	if b.at(i).on(t) && !b.counted {
		return
	}
	e := b.load(i)
	n := uint8(1)
	if c := e.copies.on(t); b.counted {
		n = max(c, c+1) // stays at 255
	}
	b.set(i, &e, t, n, emit)
}

func (b *base) less(i uint32, t kv.Tier, emit func(index.Change)) {
	p := b.at(i)
	if !p.on(t) {
		return
	}
	if p.alone(t) {
		b.last(i, p, t, emit)
		return
	}
	e := b.load(i)
	n := e.copies.on(t) - 1
	if !b.counted {
		n = 0
	}
	b.set(i, &e, t, n, emit)
}

// last is set for the only copy of entry i, which is at p and alone there.
func (b *base) last(i uint32, p *packed, t kv.Tier, emit func(index.Change)) {
	e := entry{hash: p.hash(), val: p.val(), copies: 1 << (8 * t), state: keyed, group: b.group(i, p)}
	b.digest -= b.sum(i, &e)
	p.clear(t)
	if t == kv.HBM && e.group == 0 {
		b.leave(i)
	}
	b.count(&e, t, false)
	emit(index.Change{Key: kv.Key(e.val), Group: e.group, Tier: t, Whole: !b.holes})
	b.empty(i, &e)
}

// empty notes that e, entry i, has no copy left.
func (b *base) empty(i uint32, e *entry) {
	b.emptied = append(b.emptied, i)
	b.byKey.fetch(place(e.val, e.group)) // purge takes it out there
}

// set changes a number of copies of e, entry i, and everything that follows
// from it.
func (b *base) set(i uint32, e *entry, t kv.Tier, n uint8, emit func(index.Change)) {
	was := e.copies.on(t)
	if was == n {
		return
	}
	b.digest -= b.sum(i, e)
	e.copies = e.copies.with(t, n)
	b.digest += b.sum(i, e)
	b.store(i, e)
	if (was == 0) == (n == 0) {
		return
	}
	if n == 0 && t == kv.HBM && e.group == 0 {
		b.leave(i)
	}
	b.count(e, t, n > 0)
	if e.keyed() && !b.elsewhere(i, e, t) {
		emit(index.Change{Key: kv.Key(e.val), Group: e.group, Tier: t, Present: n > 0, Whole: !b.holes})
	}
	if e.empty() {
		b.empty(i, e)
	}
}

// count notes that entry e came to a tier or left it.
func (b *base) count(e *entry, t kv.Tier, came bool) {
	d := -1
	if came {
		d = 1
	}
	b.onTier[t] += d
	if e.group == 0 {
		b.held[t] += d
	}
}

// elsewhere reports whether another entry with the key of e, entry i, is on t.
func (b *base) elsewhere(i uint32, e *entry, t kv.Tier) bool {
	if e.state != twin {
		return false
	}
	for j := range b.byKey.all(place(e.val, e.group)) {
		if o := b.at(j); j != i && o.val() == e.val && o.on(t) && b.group(j, o) == e.group {
			return true
		}
	}
	return false
}

// sum is the share of e, entry i, in the digest: the XXH3-64 of its engine hash,
// key (or content), parent's hash, group, state and copies. An entry without
// copies has none, for it is about to go.
func (b *base) sum(i uint32, e *entry) uint64 {
	if e.empty() {
		return 0
	}
	var parent, state uint64
	if e.state == unkeyed {
		o := b.orphans[i]
		parent, state = uint64(o.parent.hash), 1
		if o.same {
			state = 2
		}
	}
	return kv.Sum32(uint64(e.hash), e.val, parent, uint64(e.group)|state<<16|uint64(e.copies)<<24)
}

func (b *base) each(emit func(index.Change)) {
	for i := range b.unused {
		if b.at(i).state() < keyed {
			continue
		}
		e := b.load(i)
		for t := range kv.Tier(kv.NumTiers) {
			if e.copies.on(t) > 0 {
				emit(index.Change{Key: kv.Key(e.val), Group: e.group, Tier: t, Present: true, Whole: !b.holes})
			}
		}
	}
}
