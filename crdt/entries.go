package crdt

import "github.com/rhizome-router/rhizome/kv"

// find returns the number of the entry of an engine hash.
func (b *base) find(group uint16, hash kv.EngineHash) (uint32, bool) {
	t := &b.byHash
	if len(t.buckets) == 0 {
		return 0, false
	}
	h := place(uint64(hash), group)
	for p := t.home(h); ; p = t.next(p) {
		bucket := &t.buckets[p]
		for _, cell := range &bucket.cells {
			if cell == 0 {
				break
			}
			if i, maybe := number(cell, h); maybe {
				if e := b.at(i); e.hash == hash && e.group == group {
					return i, true
				}
			}
		}
		if bucket.passed == 0 {
			return 0, false
		}
	}
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
			sum += uint32(b.at(i).copies[0])
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

func (b *base) keyOf(group uint16, hash kv.EngineHash) (kv.Key, bool) {
	i, ok := b.find(group, hash)
	if !ok || !b.at(i).keyed() {
		return 0, false
	}
	return kv.Key(b.at(i).val), true
}

// create makes an entry without copies that is neither keyed nor an orphan
// yet: the caller sees to that. ok is false at the limit.
func (b *base) create(group uint16, hash kv.EngineHash) (i uint32, ok bool) {
	if b.blocks == b.max {
		return 0, false
	}
	if b.free != 0 {
		i = b.free - 1
		b.free = uint32(b.at(i).val)
	} else {
		i = b.unused
		if int(i/pageEntries) == len(b.pages) {
			b.pages = append(b.pages, new([pageEntries]entry))
		}
		b.unused++
	}
	b.blocks++
	*b.at(i) = entry{hash: hash, group: group, state: unkeyed}
	if b.byHash.full() {
		b.byHash.resize(grown(b.byHash.used))
		for j := range b.unused {
			if e := b.at(j); e.state != vacant && j != i {
				b.byHash.add(j, place(uint64(e.hash), e.group))
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
	return n + n/2
}

// setKey makes an entry a keyed one.
func (b *base) setKey(i uint32, k kv.Key) {
	if b.byKey.full() {
		b.byKey.resize(grown(b.byKey.used))
		for j := range b.unused {
			if e := b.at(j); e.keyed() {
				b.byKey.add(j, place(e.val, e.group))
			}
		}
	}
	e := b.at(i)
	h := place(uint64(k), e.group)
	e.val, e.state = uint64(k), keyed
	for j := range b.byKey.all(h) {
		if o := b.at(j); o.val == e.val && o.group == e.group {
			o.state, e.state = twin, twin
		}
	}
	b.byKey.add(i, h)
}

// purge gives back the entries that the batch left without copies.
func (b *base) purge() {
	for _, i := range b.emptied {
		e := b.at(i)
		if e.state == vacant || !e.empty() {
			continue
		}
		if e.keyed() {
			b.byKey.remove(i, place(e.val, e.group))
		} else {
			b.unlink(i)
		}
		b.byHash.remove(i, place(uint64(e.hash), e.group))
		*e = entry{val: uint64(b.free)}
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
	n := len(b.pages)*pageEntries*entryBytes + bucketBytes*(len(b.byHash.buckets)+len(b.byKey.buckets))
	return int64(n + 4*cap(b.emptied) + 120*len(b.orphans))
}
