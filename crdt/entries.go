package crdt

import (
	"github.com/rhizome-router/rhizome/kv"
)

// findAt returns the number of the entry of an engine hash whose place is h.
func (b *base) findAt(h uint64, group uint16, hash kv.EngineHash) (uint32, bool) {
	t := &b.byHash
	if len(t.buckets) == 0 {
		return 0, false
	}
	at := t.home(h)
	for range t.buckets { // entries may have gone on from all of them
		bucket := &t.buckets[at]
		for c, maybe := 0, bucket.having(tag(h)); maybe != 0; {
			c, maybe = maybe.first()
			i := bucket.number(c)
			if p := b.at(i); p.hash() == hash && b.group(i, p) == group {
				return i, true
			}
		}
		if bucket.passed() == 0 {
			break
		}
		at = t.next(at)
	}
	return 0, false
}

// keyOf returns the key of a block and its number + 1. ok is false if it has
// none; the number is 0 if there is no such block.
func (b *base) keyOf(group uint16, hash kv.EngineHash) (k kv.Key, number uint32, ok bool) {
	i, ok := b.findAt(place(uint64(hash), group), group, hash)
	if !ok {
		return 0, 0, false
	}
	p := b.at(i)
	if p.state() < keyed {
		return 0, i + 1, false
	}
	return kv.Key(p.val()), i + 1, true
}

// create makes an entry without copies for an engine hash whose place is h. It is
// neither keyed nor an orphan yet: the caller sees to that. ok is false at the
// limit.
func (b *base) create(h uint64, group uint16, hash kv.EngineHash) (i uint32, ok bool) {
	i, ok = b.take(h)
	if ok {
		b.at(i).setLink(0)
		b.store(i, &entry{hash: hash, group: group, state: unkeyed})
	}
	return i, ok
}

// take returns the number of an entry to be stored for an engine hash whose place
// is h.
func (b *base) take(h uint64) (i uint32, ok bool) {
	if b.blocks == b.max {
		return 0, false
	}
	if b.byHash.full() {
		b.byHash.resize(grown(b.byHash.used))
		b.fill(&b.byHash, func(j uint32, p *packed) (uint64, bool) {
			return place(uint64(p.hash()), b.group(j, p)), p.state() != vacant
		})
	}
	if b.free != 0 {
		i = b.free - 1
		b.free = uint32(b.at(i).val())
		b.fetchFree()
	} else {
		i = b.unused
		if int(i/pageEntries) == len(b.pages) {
			b.pages = append(b.pages, new([pageEntries]packed))
		}
		b.unused++
	}
	b.blocks++
	b.byHash.add(i, h)
	return i, true
}

// fill adds to an empty table the entries of which hash says that they belong
// there, and where.
func (b *base) fill(t *table, hash func(i uint32, p *packed) (h uint64, ok bool)) {
	var entries [lookahead]uint32
	var hashes [lookahead]uint64
	n := 0
	flush := func() {
		for k := range n {
			t.add(entries[k], hashes[k])
		}
		n = 0
	}
	for i := range b.unused {
		if h, ok := hash(i, b.at(i)); ok {
			t.fetch(h)
			entries[n], hashes[n] = i, h
			if n++; n == lookahead {
				flush()
			}
		}
	}
	flush()
}

// grown returns for how many entries to make room when there are n.
func grown(n int) int {
	if n < 4096 {
		return 32 + 2*n
	}
	return n + n/10
}

// setKey makes an entry a keyed one; h is the key's place.
func (b *base) setKey(i uint32, k kv.Key, h uint64) {
	p := b.at(i)
	state := b.shareKey(k, b.group(i, p), h)
	p.setVal(uint64(k))
	p.setState(state)
	b.byKey.add(i, h)
}

// shareKey makes room for one more entry by key and returns what state one with
// key k, at place h, will have: those that have the key already are twins with it.
func (b *base) shareKey(k kv.Key, group uint16, h uint64) entryState {
	if b.byKey.full() {
		b.byKey.resize(grown(b.byKey.used))
		b.fill(&b.byKey, func(j uint32, p *packed) (uint64, bool) {
			return place(p.val(), b.group(j, p)), p.state() >= keyed
		})
	}
	state := keyed
	for j := range b.byKey.all(h) {
		if o := b.at(j); o.val() == uint64(k) && b.group(j, o) == group {
			o.setState(twin)
			state = twin
		}
	}
	return state
}

// purge gives back the entries that the batch left without copies.
func (b *base) purge() {
	for _, i := range b.emptied {
		p := b.at(i)
		state := p.state()
		if state == vacant || p.some() {
			continue
		}
		group := b.group(i, p)
		if state >= keyed {
			b.byKey.remove(i, place(p.val(), group))
		} else {
			b.unlink(i)
		}
		b.byHash.remove(i, place(uint64(p.hash()), group))
		b.store(i, &entry{val: uint64(b.free)})
		b.free = i + 1
		b.blocks--
	}
	b.emptied = b.emptied[:0]
	if b.blocks == 0 {
		*b = b.bare()
	} else if int(b.unused) > 4*(b.blocks+pageEntries) {
		b.compact()
	}
}

func (b *base) bytes() int64 {
	n := len(b.pages)*pageEntries*packedBytes + bucketBytes*(len(b.byHash.buckets)+len(b.byKey.buckets))
	return int64(n + 4*cap(b.emptied) + 120*len(b.orphans) + detailBytes*len(b.details))
}
