package crdt

import (
	"math/bits"

	"github.com/rhizome-router/rhizome/kv"
)

// find returns the number of the entry of an engine hash.
func (b *base) find(group uint16, hash kv.EngineHash) (uint32, bool) {
	t := &b.byHash
	if len(t.buckets) == 0 {
		return 0, false
	}
	h := place(uint64(hash), group)
	at := t.home(h)
	for range t.buckets { // entries may have gone on from all of them
		bucket := &t.buckets[at]
		for maybe := bucket.having(tag(h)); maybe != 0; maybe &= maybe - 1 {
			c := bits.TrailingZeros32(maybe)
			if bucket.tags[c] != tag(h) {
				continue
			}
			i := bucket.number(c)
			if p := b.at(i); p.hash() == hash && b.group(i, p) == group {
				return i, true
			}
		}
		if !bucket.some() {
			break
		}
		at = t.next(at)
	}
	return 0, false
}

// lookahead is how many blocks of an op are fetched from memory together: the
// processor waits for all of them at once instead of for one after the other.
const lookahead = 16

// warm fetches what a search for the hashes will look at.
func (b *base) warm(group uint16, hashes []kv.EngineHash) {
	if len(hashes) == 1 {
		return
	}
	sum := uint32(0)
	for _, h := range hashes {
		sum += b.byHash.peek(place(uint64(h), group))
	}
	for _, h := range hashes {
		if i, ok := b.find(group, h); ok {
			sum += uint32(b.at(i)[packedBytes-1])
		}
	}
	b.warmed = sum
}

// warmBlocks fetches where blocks will go that follow a key, if that is known.
func (b *base) warmBlocks(group uint16, blocks []kv.Block, key kv.Key, known bool) {
	if len(blocks) == 1 {
		return
	}
	sum := uint32(0)
	for _, blk := range blocks {
		sum += b.byHash.peek(place(uint64(blk.Hash), group))
		if known {
			key = kv.Next(key, blk.Content)
			sum += b.byKey.peek(place(uint64(key), group))
		}
	}
	b.warmed = sum
}

// keyOf returns the key of a block and its number + 1. ok is false if it has
// none; the number is 0 if there is no such block.
func (b *base) keyOf(group uint16, hash kv.EngineHash) (k kv.Key, number uint32, ok bool) {
	i, ok := b.find(group, hash)
	if !ok {
		return 0, 0, false
	}
	p := b.at(i)
	if p.state() < keyed {
		return 0, i + 1, false
	}
	return kv.Key(p.val()), i + 1, true
}

// create makes an entry without copies that is neither keyed nor an orphan
// yet: the caller sees to that. ok is false at the limit.
func (b *base) create(group uint16, hash kv.EngineHash) (i uint32, ok bool) {
	if b.blocks == b.max {
		return 0, false
	}
	if b.free != 0 {
		i = b.free - 1
		b.free = uint32(b.at(i).val())
	} else {
		i = b.unused
		if int(i/pageEntries) == len(b.pages) {
			b.pages = append(b.pages, new([pageEntries]packed))
		}
		b.unused++
	}
	b.blocks++
	b.at(i).setLink(0)
	b.store(i, &entry{hash: hash, group: group, state: unkeyed})
	if b.byHash.full() {
		b.byHash.resize(grown(b.byHash.used))
		for j := range b.unused {
			if p := b.at(j); p.state() != vacant && j != i {
				b.byHash.add(j, place(uint64(p.hash()), b.group(j, p)))
			}
		}
	}
	b.byHash.add(i, place(uint64(hash), group))
	return i, true
}

// grown returns for how many entries to make room when there are n.
func grown(n int) int {
	if n < 4096 {
		return 32 + 2*n
	}
	return n + n/10
}

// setKey makes an entry a keyed one.
func (b *base) setKey(i uint32, k kv.Key) {
	if b.byKey.full() {
		b.byKey.resize(grown(b.byKey.used))
		for j := range b.unused {
			if p := b.at(j); p.state() >= keyed {
				b.byKey.add(j, place(p.val(), b.group(j, p)))
			}
		}
	}
	e := b.load(i)
	h := place(uint64(k), e.group)
	e.val, e.state = uint64(k), keyed
	for j := range b.byKey.all(h) {
		if o := b.at(j); o.val() == e.val && b.group(j, o) == e.group {
			o.setState(twin)
			e.state = twin
		}
	}
	b.store(i, &e)
	b.byKey.add(i, h)
}

// purge gives back the entries that the batch left without copies.
func (b *base) purge() {
	for _, i := range b.emptied {
		if b.at(i).state() == vacant {
			continue
		}
		e := b.load(i)
		if !e.empty() {
			continue
		}
		if e.keyed() {
			b.byKey.remove(i, place(e.val, e.group))
		} else {
			b.unlink(i)
		}
		b.byHash.remove(i, place(uint64(e.hash), e.group))
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
