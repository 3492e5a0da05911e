package index

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/rhizome-router/rhizome/kv"
)

// Approx remembers which chunks of which prompts were sent to which slot, for
// prompts whose tokens aren't known: a key stands for a KiB of text or more,
// chained to those before it. Nobody confirms or removes these entries;
// whether a chunk is still there follows from its age. A slot's clock for that
// is the number of tokens it has stored so far: under LRU a chunk leaves a
// tier when so many tokens came after its last use as the tier holds.
//
// The table is a set-associative cache of fixed size: an entry may lie in 8
// places, and when they are full, the one touched longest ago gives way. Those
// of the first chunks of prompts are listed by chunk besides, so that a search
// costs the more the more slots were sent a prompt's beginning, and not the more
// there are. All methods are safe for concurrent use; Match calls don't wait for each other.
type Approx struct {
	mu     sync.RWMutex
	mult   uint64
	size   int         // how many sets there are, once anything was sent
	sets   []approxSet // nil before that, and then no slot is active
	now    uint64      // number of the last Touch
	born   []uint64    // by slot: entries touched up to then are a former owner's
	active []Slot      // slots touched since they were last dropped, sorted
	begin  *beginnings // of the entries marked so; nil while sets are
	stats  ApproxStats // only Evicted is kept
}

const (
	ways           = 8
	approxSlotBits = 20
	maxApproxSlots = 1 << approxSlotBits
)

// approxSet holds eight entries, each one chunk on one slot, in three cache
// lines: a search needs the keys alone. A mark is the number of the last Touch
// << approxSlotBits | slot, 0 if the entry was never used; 44 bits are enough
// for 100,000 calls a second over five years. A clock is tokens, and whether the
// chunk began a prompt.
type approxSet struct {
	keys, clocks, marks [ways]uint64
}

// ApproxConfig sets an Approx's limits. The zero value is usable.
type ApproxConfig struct {
	// MaxEntries bounds the (chunk, slot) pairs, 24 B each, and about 16 more where
	// the chunk is a prompt's first. The former are allocated at once
	// when the first comes (the system backs the pages only as they are used);
	// default 2 Mi. It is rounded up to a multiple of 8.
	MaxEntries int `yaml:"max_entries"`
	// Seed varies the placement of keys; see Config.
	Seed uint64 `yaml:"-"`
}

// maxApproxEntries bounds MaxEntries: 24 GiB.
const maxApproxEntries = 1 << 30

// WithDefaults returns c with a limit of zero replaced by its default.
func (c ApproxConfig) WithDefaults() ApproxConfig {
	c.MaxEntries = cmp.Or(c.MaxEntries, 2<<20)
	return c
}

// Validate says what in c, after WithDefaults, can't work; the problem begins
// with its key.
func (c ApproxConfig) Validate() error {
	if n := c.WithDefaults().MaxEntries; n < 1 || n > maxApproxEntries {
		return fmt.Errorf("max_entries is %d: want 1 to %d", n, maxApproxEntries)
	}
	return nil
}

// NewApprox returns an empty table.
func NewApprox(cfg ApproxConfig) *Approx {
	cfg = cfg.WithDefaults()
	return &Approx{
		mult: cfg.Seed<<1 ^ 0x9e3779b97f4a7c15,
		size: (cfg.MaxEntries + ways - 1) / ways,
	}
}

func (a *Approx) set(key uint64, s Slot) *approxSet {
	h := (key ^ key>>32 ^ uint64(s)*0xd6e8feb86659fd93) * a.mult
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	i, _ := bits.Mul64(h, uint64(len(a.sets)))
	return &a.sets[i]
}

// Touch records that a prompt with the chunks keys went to slot s when s's
// clock stood at clockTokens. Slots of 1 Mi and more are ignored.
func (a *Approx) Touch(s Slot, keys []kv.Key, clockTokens uint64) {
	a.touch(s, keys, clockTokens, false)
}

// Merge records what another observer saw: like Touch, but a chunk that was
// touched here at that clock or later stays as it is.
func (a *Approx) Merge(s Slot, keys []kv.Key, clockTokens uint64) {
	a.touch(s, keys, clockTokens, true)
}

// Stale appends to dst the keys that were not touched on slot s, or before its
// clock stood at since.
func (a *Approx) Stale(s Slot, keys []kv.Key, since uint64, dst []kv.Key) []kv.Key {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, known := slices.BinarySearch(a.active, s)
	for _, k := range keys {
		if known {
			if clock, ok := a.find(uint64(k), s); ok && clock >= since {
				continue
			}
		}
		dst = append(dst, k)
	}
	return dst
}

func (a *Approx) touch(s Slot, keys []kv.Key, clockTokens uint64, keepNewer bool) {
	if s >= maxApproxSlots || len(keys) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i, ok := slices.BinarySearch(a.active, s); !ok {
		a.active = slices.Insert(a.active, i, s)
		for len(a.born) <= int(s) {
			a.born = append(a.born, 0)
		}
	}
	if a.sets == nil {
		a.sets, a.begin = make([]approxSet, a.size), newBeginnings(a.mult)
	}
	a.now++
	first := uint64(begins)
	for batch := range slices.Chunk(keys, fetchBatch) {
		a.fetch(batch, s)
		for _, k := range batch {
			a.enter(uint64(k), s, clockTokens&^begins|first, keepNewer)
			first = 0
		}
	}
}

// begins marks the clock of a chunk that began a prompt.
const begins = 1 << 63

// enter touches one chunk.
func (a *Approx) enter(key uint64, s Slot, clock uint64, keepNewer bool) {
	set := a.set(key, s)
	i := a.place(set, key, s)
	old, was := set.clocks[i], set.marks[i]
	same := was != 0 && set.keys[i] == key && slotOf(was) == s
	switch {
	case same:
		clock |= old & begins
	case was != 0 && old&begins != 0:
		a.begin.forget(set.keys[i], slotOf(was))
	}
	if clock&begins != 0 && !(same && old&begins != 0) {
		a.begin.note(key, s)
	}
	if keepNewer && same && a.alive(was) && old&^begins >= clock&^begins {
		set.clocks[i] = old | clock&begins
		return
	}
	set.keys[i], set.clocks[i], set.marks[i] = key, clock, a.now<<approxSlotBits|uint64(s)
}

// fetchBatch is how many sets are fetched at once: what a first-level cache
// can hold beside other things.
const fetchBatch = 32

// fetch reads from the sets of some chunks and does nothing with it: the
// memory then answers for all of them at once and not for one after the other,
// as it does when each answer decides what is done next. It must not be
// inlined, or nothing would be read.
//
//go:noinline
func (a *Approx) fetch(keys []kv.Key, s Slot) (sum uint64) {
	for _, k := range keys {
		set := a.set(uint64(k), s)
		sum += set.keys[0] + set.clocks[0] + set.marks[0]
	}
	return sum
}

// place returns which entry of a set is a chunk's, or gives way to it: a dead
// one, else the one touched longest ago.
func (a *Approx) place(set *approxSet, key uint64, s Slot) int {
	for m := set.having(key); m != 0; m &= m - 1 {
		if i := bits.TrailingZeros8(m); set.marks[i] != 0 && slotOf(set.marks[i]) == s {
			return i
		}
	}
	oldest, oldestMark := 0, ^uint64(0)
	for i, mark := range set.marks {
		if !a.alive(mark) {
			mark = 0
		}
		if mark < oldestMark {
			oldest, oldestMark = i, mark
		}
	}
	if oldestMark != 0 {
		a.stats.Evicted++
	}
	return oldest
}

// having has a bit for each entry that has the key. It does not branch: a
// processor that need not guess which entry it is fetches the sets of many
// chunks at once.
func (set *approxSet) having(key uint64) (m uint8) {
	for i, k := range set.keys {
		var same uint8
		if k == key {
			same = 1
		}
		m |= same << i
	}
	return m
}

func slotOf(mark uint64) Slot { return Slot(mark & (maxApproxSlots - 1)) }

func (a *Approx) alive(mark uint64) bool { return mark>>approxSlotBits > a.born[slotOf(mark)] }

// Horizon says what is still on a slot: chunks last touched less than HBM
// tokens before Now are in HBM, those less than Total before Now on tier
// Lower, older ones gone.
type Horizon struct {
	Now   uint64 // the slot's clock, in tokens
	HBM   uint64 // tokens
	Total uint64 // tokens; HBM or less if there is no lower tier
	Lower kv.Tier
}

// Match appends to dst a Hit for each slot that was sent the prompt's first
// chunk and still holds it by its horizon, in the order of slots, and returns
// it. The runs count chunks; Promised equals Run. horizon is called once for
// each slot that was sent the first chunk, with the table's read lock held.
// Match allocates nothing but what dst needs to grow.
func (a *Approx) Match(keys []kv.Key, horizon func(Slot) Horizon, dst []Hit) []Hit {
	if len(keys) == 0 {
		return dst
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.begin == nil {
		return dst
	}
	for _, h := range a.begin.slots(keys[0]) {
		s := h.slot()
		if _, ok := a.find(uint64(keys[0]), s); !ok {
			continue // the slot was dropped
		}
		r := a.run(keys, s, horizon(s))
		if r.Len() > 0 {
			dst = append(dst, Hit{Slot: s, Run: r, Promised: r})
		}
	}
	return dst
}

// run returns how many of the keys, from the first on, a slot holds.
func (a *Approx) run(keys []kv.Key, s Slot, h Horizon) (r Run) {
	fetched := 1 // the first by the caller
	for i, k := range keys {
		if i == fetched {
			fetched = min(i+min(i+1, fetchBatch), len(keys)) // few at first: most runs are short
			a.fetch(keys[i:fetched], s)
		}
		if clock, ok := a.find(uint64(k), s); !ok || !r.add(h, clock) {
			break
		}
	}
	return r
}

// find returns a chunk's clock on a slot.
func (a *Approx) find(key uint64, s Slot) (clock uint64, ok bool) {
	set := a.set(key, s)
	for m := set.having(key); m != 0; m &= m - 1 {
		i := bits.TrailingZeros8(m)
		if mark := set.marks[i]; slotOf(mark) == s && a.alive(mark) {
			return set.clocks[i] &^ begins, true
		}
	}
	return 0, false
}

// add extends r by a chunk touched at clock; false if it is gone.
func (r *Run) add(h Horizon, clock uint64) bool {
	age := h.Now - min(clock, h.Now)
	switch {
	case age < h.HBM && r.Lower == 0:
		r.HBM++
	case age < h.Total:
		r.Lower++
		r.Tier = h.Lower
	default:
		return false
	}
	return true
}

// Drop forgets everything sent to slot s, at once.
func (a *Approx) Drop(s Slot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i, ok := slices.BinarySearch(a.active, s); ok {
		a.active = slices.Delete(a.active, i, i+1)
		a.born[s] = a.now
	}
}

// ApproxStats is a snapshot of an Approx's size.
type ApproxStats struct {
	MaxEntries  int    `json:"max_entries"`
	Bytes       int64  `json:"bytes"`
	ActiveSlots int    `json:"active_slots"`
	Evicted     uint64 `json:"evicted"` // live entries that gave way to others, since NewApprox
}

// Stats returns the current sizes.
func (a *Approx) Stats() ApproxStats {
	a.mu.RLock()
	defer a.mu.RUnlock()
	st := a.stats
	st.MaxEntries = ways * a.size
	st.Bytes = int64(ways*len(a.sets)) * 24
	if a.begin != nil {
		st.Bytes += a.begin.used.Load()
	}
	st.ActiveSlots = len(a.active)
	return st
}
