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

// findAll returns the number + 1 of the entry of each hash, 0 for none. There
// are at most lookahead of them; the result is good until the next call.
func (b *base) findAll(group uint16, hashes []kv.EngineHash) []uint32 {
	if len(hashes) > 1 {
		sum := uint32(0)
		for _, h := range hashes {
			sum += b.byHash.peek(place(uint64(h), group))
		}
		b.warmed = sum
	}
	for j, h := range hashes {
		i, ok := b.find(group, h)
		if b.found[j] = 0; ok {
			b.found[j] = i + 1
		}
	}
	return b.found[:len(hashes)]
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

// warmKeys fetches where the keys of entries are found.
func (b *base) warmKeys(entries []uint32) {
	if len(entries) == 1 {
		return
	}
	sum := uint32(0)
	for _, i := range entries {
		p := b.at(i)
		sum += b.byKey.peek(place(p.val(), b.group(i, p)))
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
		b.fill(&b.byHash, func(j uint32, p *packed) (uint64, bool) {
			return place(uint64(p.hash()), b.group(j, p)), p.state() != vacant && j != i
		})
	}
	b.byHash.add(i, place(uint64(hash), group))
	return i, true
}

// fill adds to an empty table the entries of which hash says that they belong
// there, and where.
func (b *base) fill(t *table, hash func(i uint32, p *packed) (h uint64, ok bool)) {
	var entries [lookahead]uint32
	var hashes [lookahead]uint64
	n, sum := 0, uint32(0)
	flush := func() {
		for k := range n {
			t.add(entries[k], hashes[k])
		}
		n = 0
	}
	for i := range b.unused {
		if h, ok := hash(i, b.at(i)); ok {
			sum += t.peek(h)
			entries[n], hashes[n] = i, h
			if n++; n == lookahead {
				flush()
			}
		}
	}
	flush()
	b.warmed = sum
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
		b.fill(&b.byKey, func(j uint32, p *packed) (uint64, bool) {
			return place(p.val(), b.group(j, p)), p.state() >= keyed
		})
	}
	p := b.at(i)
	group := b.group(i, p)
	h := place(uint64(k), group)
	p.setVal(uint64(k))
	p.setState(keyed)
	for j := range b.byKey.all(h) {
		if o := b.at(j); o.val() == uint64(k) && b.group(j, o) == group {
			o.setState(twin)
			p.setState(twin)
		}
	}
	b.byKey.add(i, h)
}

// purge gives back the entries that the batch left without copies.
func (b *base) purge() {
	for n, i := range b.emptied {
		if n%lookahead == 0 {
			b.warmKeys(b.emptied[n:min(n+lookahead, len(b.emptied))])
		}
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
