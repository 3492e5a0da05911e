// Package index is the local prefix index: which slots hold which block, on
// which tiers, and how far a prompt's blocks are found on each.
//
// The central type is [Index]; start reading at [Index.Match]. A [Slot] stands
// for one boot of one target. The changes of a slot come from package crdt
// ([Index.Apply]), and dispatches promise blocks that no event has confirmed
// yet ([Index.Begin]). [Approx] is the index for prompts whose tokens aren't
// known: it remembers which byte chunks were sent where.
//
// Inside, blocks lie in 4096 shards, each an open-addressing table behind its
// own lock (lock.go, shard.go). A reader holds a shard's lock for one block's probe,
// a writer for one change or, rarely, for copying one shard's table as it
// grows; nobody ever holds two. Tables hold no pointers.
package index

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/rhizome-router/rhizome/kv"
)

// Slot is the dense local number of one boot of one target. It never leaves
// the process. A dropped slot's number is given out again once every trace of
// it is swept.
type Slot uint32

const (
	slotBits = 24
	maxSlots = 1 << slotBits
)

// TierRule says which lower tiers an engine continues a prefix on, after the
// blocks it has in HBM.
type TierRule uint8

const (
	// HBMThenOneTier: the HBM run goes on in any one lower tier (vLLM).
	HBMThenOneTier TierRule = iota
	// DeviceThenHost: the HBM run goes on in CPU memory only (SGLang).
	DeviceThenHost
)

func (r TierRule) lower() kv.TierMask {
	if r == DeviceThenHost {
		return kv.CPU.Mask()
	}
	return (1<<kv.NumTiers - 1) &^ kv.HBM.Mask()
}

// Change says that a block became present on a tier of a slot, or absent from
// it.
type Change struct {
	Key     kv.Key
	Group   uint16 // KV-cache group; 0 is main attention
	Tier    kv.Tier
	Present bool
	// Whole vouches, where Group is 0 and Tier is HBM, that the slot's HBM has no
	// block without all those before it in their chain, this one included. Match
	// then need not look at each block. It may be false though it is so; once it
	// was false for a slot, Match looks at each until the slot is dropped.
	Whole bool
}

// Config sets an Index's limits. The zero value is usable.
type Config struct {
	// MaxBytes bounds the memory of the tables; default 1 GiB. A block that
	// would need more is refused and counted. While a shard grows, the copy
	// of that one shard comes on top.
	MaxBytes int64 `yaml:"max_bytes"`
	// MaxPromises bounds the (slot, block) pairs promised at one time, each
	// about 60 B; default 1 Mi.
	MaxPromises int `yaml:"max_promises"`
	// Seed varies how keys are placed, so that nobody outside can choose
	// prompts that crowd one place. Results don't depend on it.
	Seed uint64 `yaml:"-"`
}

// Index is the prefix index. All methods are safe for concurrent use. For one
// slot, Apply has one caller at a time, which sees to it that Drop isn't
// called before its last Apply returned.
type Index struct {
	shards [numShards]shard
	mult   uint64 // odd
	common

	// slots is what is known of the slots, replaced as a whole by Open,
	// SetGroups, Drop and the sweep; readers load it once.
	slots    atomic.Pointer[slotTable]
	draining atomic.Int32 // slots that wait for the sweep or are in it
	sweep    sweep
	promises promises
	removals removals
	lists    sync.Pool // of *lists
}

// WithDefaults returns c with every zero limit replaced by its default.
func (c Config) WithDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, 1<<30)
	c.MaxPromises = cmp.Or(c.MaxPromises, 1<<20)
	return c
}

// Validate says what in c, after WithDefaults, can't work; each problem begins
// with its key.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if c.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("max_bytes is %d: want a number of bytes above 0", c.MaxBytes))
	}
	if c.MaxPromises < 0 {
		errs = append(errs, fmt.Errorf("max_promises is %d: want a number above 0", c.MaxPromises))
	}
	return errors.Join(errs...)
}

// New returns an empty index.
func New(cfg Config) *Index {
	cfg = cfg.WithDefaults()
	x := &Index{mult: cfg.Seed<<1 ^ 0x9e3779b97f4a7c15}
	x.max = cfg.MaxBytes
	x.bed.init()
	x.slots.Store(new(slotTable))
	x.promises.init(cfg.MaxPromises)
	for i := range x.shards {
		x.shards[i].no = uint32(i)
	}
	return x
}

// hash returns the hash of a block. Windowed groups share the tables: the group
// is folded into the key.
func (x *Index) hash(group uint16, k kv.Key) uint64 {
	return hash(uint64(k)^uint64(group)*0xd6e8feb86659fd93, x.mult)
}

// in returns the shard of a hash and the place there.
func (x *Index) in(h uint64) (*shard, place) { return &x.shards[h>>placeBits], placeOf(h) }

// at returns the shard of a block and its place there.
func (x *Index) at(group uint16, k kv.Key) (*shard, place) { return x.in(x.hash(group, k)) }

// lines returns where a hash's shard and home bucket are, to be fetched. It needs no
// lock.
func (x *Index) lines(h uint64) (sh, home uintptr) {
	i := h >> placeBits
	head := &x.heads[i]
	p, _ := bits.Mul64(h<<shardBits, uint64(head.count.Load()))
	return uintptr(unsafe.Pointer(&x.shards[i])), uintptr(unsafe.Pointer(head.where.Load())) + uintptr(p)*bucketBytes
}

// Tiers returns the tiers on which slot s holds a block, promises not counted.
func (x *Index) Tiers(s Slot, group uint16, k kv.Key) kv.TierMask {
	if !x.slots.Load().state(s).open() {
		return 0
	}
	return x.holder(s, group, k).tiers()
}

// holder returns slot s's share in a block, or 0.
func (x *Index) holder(s Slot, group uint16, k kv.Key) holder {
	sh, at := x.at(group, k)
	sh.mu.rlock(&x.bed)
	defer sh.mu.runlock(&x.bed)
	if b, c := sh.find(at); b != nil {
		v := sh.view(b, c)
		if j, ok := search(v, s); ok {
			return v[j]
		}
	}
	return 0
}

// Stats is a snapshot of an index's size. Blocks of draining slots count until
// they are swept.
type Stats struct {
	Keys     int    `json:"keys"`    // distinct blocks, all groups
	Holders  int    `json:"holders"` // (block, slot) pairs
	Bytes    int64  `json:"bytes"`   // memory of the tables
	MaxBytes int64  `json:"max_bytes"`
	Refused  uint64 `json:"refused"` // insertions refused by the budget, since New

	OpenSlots     int `json:"open_slots"`
	DrainingSlots int `json:"draining_slots"` // dropped, not yet swept

	Tickets         int    `json:"tickets"`
	Promises        int    `json:"promises"`         // (block, slot) pairs promised and not ended
	PromisesRefused uint64 `json:"promises_refused"` // blocks not promised because of MaxPromises or MaxBytes
}

// Stats returns the current sizes.
func (x *Index) Stats() Stats {
	st := Stats{Bytes: x.used.Load(), MaxBytes: x.max, Refused: x.refused.Load()}
	for i := range x.shards {
		sh := &x.shards[i]
		sh.mu.rlock(&x.bed)
		st.Keys += int(sh.keys)
		st.Holders += int(sh.holders)
		sh.mu.runlock(&x.bed)
	}
	for _, s := range x.slots.Load().states {
		if s.open() {
			st.OpenSlots++
		}
	}
	st.DrainingSlots = int(x.draining.Load())
	x.promises.stats(&st)
	return st
}

// holder is one slot's share in a block: slot<<6 | promised<<5 | tiers. A
// stored holder has at least one of its low six bits, and never both promised
// and HBM: a confirmed promise is none any more.
type holder uint32

const (
	markBits        = kv.NumTiers + 1
	markMask holder = 1<<markBits - 1
	promised holder = 1 << kv.NumTiers
	tierBits holder = promised - 1
	onHBM    holder = 1 << kv.HBM
)

func (h holder) slot() Slot         { return Slot(h >> markBits) }
func (h holder) marks() holder      { return h & markMask }
func (h holder) unmarked() holder   { return h &^ markMask }
func (h holder) tiers() kv.TierMask { return kv.TierMask(h & tierBits) }

// hoped returns the tiers, with a promise counted as HBM.
func (h holder) hoped() kv.TierMask {
	return kv.TierMask(h&tierBits | h&promised>>kv.NumTiers)
}

// common is what all shards share.
type common struct {
	budget
	bed   bed
	heads [numShards]head // by shard
}

// head is a shard's buckets again, to be read without its lock by those who only
// fetch, in memory that a change of a block doesn't touch.
type head struct {
	where atomic.Pointer[bucket]
	count atomic.Int64
}

// budget is the byte count that all shards share.
type budget struct {
	max     int64
	used    atomic.Int64
	refused atomic.Uint64
}

// charge takes n bytes, or returns false if that would pass the limit; a
// negative n always succeeds.
func (b *budget) charge(n int64) bool {
	if b.used.Add(n) <= b.max || n <= 0 {
		return true
	}
	b.used.Add(-n)
	return false
}
