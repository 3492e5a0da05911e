package crdt

import (
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// orphan is what an entry without a key waits for: the key of its parent, from
// which its own follows, or, if same, that of the entry of the same hash in
// group 0, which is its own, too. Orphans of one parent are linked both ways;
// the numbers are those of entries, + 1.
type orphan struct {
	parent     node
	same       bool
	prev, next uint32
}

// orphan makes a new entry wait.
func (b *base) orphan(i uint32, content uint64, o orphan) {
	if b.orphans == nil {
		b.orphans, b.waiting = map[uint32]orphan{}, map[node]uint32{}
	}
	e := b.load(i)
	e.val = content
	b.store(i, &e)
	o.next = b.waiting[o.parent]
	if o.next != 0 {
		next := b.orphans[o.next-1]
		next.prev = i + 1
		b.orphans[o.next-1] = next
	}
	b.waiting[o.parent] = i + 1
	b.orphans[i] = o
}

// unlink ends an entry's waiting, if it waits.
func (b *base) unlink(i uint32) {
	o, ok := b.orphans[i]
	if !ok {
		return
	}
	delete(b.orphans, i)
	if o.next != 0 {
		next := b.orphans[o.next-1]
		next.prev = o.prev
		b.orphans[o.next-1] = next
	}
	switch {
	case o.prev != 0:
		prev := b.orphans[o.prev-1]
		prev.next = o.next
		b.orphans[o.prev-1] = prev
	case o.next != 0:
		b.waiting[o.parent] = o.next
	default:
		delete(b.waiting, o.parent)
	}
}

// adopt gives an entry its key, and then, one after the other, those that
// waited for it and for these.
func (b *base) adopt(i uint32, k kv.Key, emit func(index.Change)) {
	b.giveKey(i, k, emit)
	if len(b.waiting) == 0 {
		return
	}
	todo := []uint32{i}
	for len(todo) > 0 {
		e := b.load(todo[len(todo)-1])
		todo = todo[:len(todo)-1]
		for at := (node{e.group, e.hash}); b.waiting[at] != 0; {
			child := b.waiting[at] - 1
			k := kv.Key(e.val)
			if !b.orphans[child].same {
				k = kv.Next(k, kv.Content(b.at(child).val()))
			}
			b.giveKey(child, k, emit)
			todo = append(todo, child)
		}
	}
}

func (b *base) giveKey(i uint32, k kv.Key, emit func(index.Change)) {
	e := b.load(i)
	b.digest -= b.sum(i, &e)
	b.unlink(i)
	b.setKey(i, k, place(uint64(k), e.group))
	e = b.load(i)
	b.digest += b.sum(i, &e)
	for t := range kv.Tier(kv.NumTiers) {
		if e.copies.on(t) > 0 && !b.elsewhere(i, &e, t) {
			emit(index.Change{Key: k, Group: e.group, Tier: t, Present: true, Whole: !b.holes})
		}
	}
}
