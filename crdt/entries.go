package crdt

import "github.com/rhizome-router/rhizome/kv"

// find returns the number of the entry of an engine hash.
func (b *base) find(group uint16, hash kv.EngineHash) (uint32, bool) {
	if len(b.byHash.cells) == 0 {
		return 0, false
	}
	h := place(uint64(hash), group)
	for p := b.byHash.home(h); b.byHash.cells[p] != 0; p = b.byHash.next(p) {
		if i, maybe := b.byHash.get(p, h); maybe {
			if e := b.at(i); e.hash == hash && e.group == group {
				return i, true
			}
		}
	}
	return 0, false
}

func (b *base) keyOf(group uint16, hash kv.EngineHash) (kv.Key, bool) {
	i, ok := b.find(group, hash)
	if !ok || b.at(i).state != keyed {
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
		if int(i>>pageBits) == len(b.pages) {
			b.pages = append(b.pages, make([]entry, 1<<pageBits))
		}
		b.unused++
	}
	b.blocks++
	*b.at(i) = entry{hash: hash, group: group, state: unkeyed}
	if b.byHash.full() {
		b.byHash.grow()
		for j := range b.unused {
			if e := b.at(j); e.state != vacant && j != i {
				b.byHash.add(j, place(uint64(e.hash), e.group))
			}
		}
	}
	b.byHash.add(i, place(uint64(hash), group))
	return i, true
}

// setKey makes an entry a keyed one.
func (b *base) setKey(i uint32, k kv.Key) {
	if b.byKey.full() {
		b.byKey.grow()
		for j := range b.unused {
			if e := b.at(j); e.state == keyed {
				b.byKey.add(j, place(e.val, e.group))
			}
		}
	}
	e := b.at(i)
	e.val, e.state = uint64(k), keyed
	b.byKey.add(i, place(e.val, e.group))
}

// purge gives back the entries that the batch left without copies.
func (b *base) purge() {
	for _, i := range b.emptied {
		e := b.at(i)
		if e.state == vacant || !e.empty() {
			continue
		}
		if e.state == keyed {
			b.byKey.remove(i, place(e.val, e.group), func(j uint32) uint64 {
				return place(b.at(j).val, b.at(j).group)
			})
		} else {
			b.unlink(i)
		}
		b.byHash.remove(i, place(uint64(e.hash), e.group), func(j uint32) uint64 {
			return place(uint64(b.at(j).hash), b.at(j).group)
		})
		*e = entry{val: uint64(b.free)}
		b.free = i + 1
		b.blocks--
	}
	b.emptied = b.emptied[:0]
	if b.blocks == 0 {
		*b = base{counted: b.counted, max: b.max, main: b.main, rooted: b.rooted, refused: b.refused}
	}
}

func (b *base) bytes() int64 {
	n := len(b.pages)<<pageBits*entryBytes + 4*(len(b.byHash.cells)+len(b.byKey.cells))
	return int64(n + 4*cap(b.emptied) + 120*len(b.orphans))
}
