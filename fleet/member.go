package fleet

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// Member is one target in the fleet. Its identity never changes; its state is
// written by the fleet's goroutines and read by anyone.
type Member struct {
	Target kv.Target
	Worker *engine.Worker
	// Class holds the constants assumed for this worker, before Fit.
	Class cost.Class

	// Ledger and what follows belong to the router, which guards them by its
	// lock. ClassFit is shared with the other members of the class; StepsSeen is
	// when the Steps were read that the fit took last, and StepsWork the ledger's
	// Work then.
	Ledger    Ledger
	Fit       cost.Fit
	ClassFit  *cost.Fit
	StepsSeen clock.Instant
	StepsWork Work
	Pace      Pace
	// BatchesSeen is how many batches of KV events there were when silent
	// prefills were last looked for among them.
	BatchesSeen uint64

	// Circuit is shared by all members of one worker.
	Circuit *Circuit

	healthy atomic.Bool
	engine  atomic.Pointer[string]
	cache   atomic.Pointer[Cache]
	signals atomic.Pointer[Signals]
	// sentTokens counts what was sent, for a worker without KV events.
	sentTokens atomic.Uint64
	peersSent  atomic.Uint64 // the same by other replicas
	stall      stall
	welcome    welcome
	precision  precision
	// largestPrefill is the most tokens that a request had to compute and did.
	largestPrefill atomic.Uint64
	peers          peerShares
	feed           atomic.Pointer[engine.Feed] // nil without KV events
	// outdated says that the worker's process is a new one and its feed has not
	// started over yet.
	outdated atomic.Bool
	process  atomic.Pointer[string]
	rendered rendered
	changes  atomic.Uint64
}

// Known says what a member's cache is known by.
type Known uint8

const (
	// Unknown: the worker was not asked yet.
	Unknown Known = iota
	// BySent: by what this replica sent there, for a worker without KV events.
	BySent
	// ByEvents: by the worker's own KV events.
	ByEvents
)

var knownNames = [...]string{"unknown", "sent", "events"}

// String returns the name that the admin API shows.
func (k Known) String() string { return knownNames[k] }

// Cache is what is known of a member's KV cache at one moment.
type Cache struct {
	Known Known
	// Slot is the member's present slot in the index: a new one each time the
	// cache starts anew.
	Slot index.Slot
	// Live says that KV events arrive, so that the index speaks for the cache.
	Live bool
	// BlockTokens is the size of a block; 0 until the worker told it.
	BlockTokens int
	// SaltInRoot says that a cache salt is part of a key's root (SGLang), not an
	// extra of the first block (vLLM).
	SaltInRoot bool
	// StoredTokens counts all tokens ever stored in HBM: the clock that ages
	// cache entries.
	StoredTokens uint64
	// HeldTokens is what the tiers hold now.
	HeldTokens [kv.NumTiers]int
	// Evicting says for each tier that blocks left it, so that what it holds
	// now is all it can hold.
	Evicting [kv.NumTiers]bool
	// Next is the number of the batch expected next, LastBatch when the one
	// before came.
	Next      uint64
	LastBatch clock.Instant
	// FreshAt is when the feed last started over or connected: what is known is
	// of the process that ran then.
	FreshAt clock.Instant
	// Batches, BadEvents and Resets count what the feed brought.
	Batches, BadEvents, Resets uint64
	// StepTokens is how many prompt tokens a full step of the engine computes,
	// as its batches of events show it: see stepSizes. 0 where it can't be told,
	// as where batches are not steps (SGLang).
	StepTokens int
	// Truncated are the tiers that are not indexed any more for want of memory.
	Truncated kv.TierMask
	// Log is the size of the stream log behind this.
	Log crdt.StreamStats
}

// NewMember returns a member that is not healthy yet and whose cache is empty.
func NewMember(t kv.Target, w *engine.Worker, class cost.Class, slot index.Slot) *Member {
	m := &Member{Target: t, Worker: w, Class: class, Circuit: new(Circuit)}
	m.cache.Store(&Cache{Slot: slot})
	m.signals.Store(new(Signals))
	return m
}

// SetHealthy records whether the worker answers; it reports a change.
func (m *Member) SetHealthy(healthy bool) (changed bool) {
	return m.healthy.Swap(healthy) != healthy
}

// SetEngine records what engine the worker said it runs.
func (m *Member) SetEngine(name string) { m.engine.Store(&name) }

// Engine returns the engine's name, empty until the worker was asked.
func (m *Member) Engine() string {
	if p := m.engine.Load(); p != nil {
		return *p
	}
	return ""
}

// SetCache publishes what is known of the cache now.
func (m *Member) SetCache(c Cache) { m.cache.Store(&c) }

// Healthy reports whether the worker answered last.
func (m *Member) Healthy() bool { return m.healthy.Load() }

// Cache returns the present view of the cache.
func (m *Member) Cache() Cache { return *m.cache.Load() }

// CacheAt is Cache without a copy: what it points to must not be changed.
func (m *Member) CacheAt() *Cache { return m.cache.Load() }

// Outdated reports whether what is known of the cache is that of a process
// which is no more.
func (m *Member) Outdated() bool { return m.outdated.Load() }

// Process names the process that the worker runs, by when it started; the same on
// all replicas. It is empty where the worker doesn't tell.
func (m *Member) Process() string {
	if p := m.process.Load(); p != nil {
		return *p
	}
	return ""
}

// SetProcess records when the worker's process started.
func (m *Member) SetProcess(start engine.Value) {
	if name := processNote(start); name != m.Process() {
		m.process.Store(&name)
	}
}

// SetOutdated records whether it is so.
func (m *Member) SetOutdated(outdated bool) { m.outdated.Store(outdated) }

// Signals returns what is known of the load and the limits, nothing but
// defaults before the first scrape.
func (m *Member) Signals() Signals {
	return *m.SignalsAt()
}

// SignalsAt is Signals without a copy: what it points to must not be changed.
func (m *Member) SignalsAt() *Signals {
	if p := m.signals.Load(); p != nil {
		return p
	}
	return new(Signals)
}

// SetSignals publishes what is known of the load and the limits now.
func (m *Member) SetSignals(s Signals) {
	m.signals.Store(&s)
	m.changes.Add(1)
}

// Changes counts how often others than this replica's router said something of
// the member's load: its metrics, and peers.
func (m *Member) Changes() uint64 { return m.changes.Load() }

// Clock is the number of tokens the member's cache has taken in: what ages the
// things it holds. Without KV events it counts what was sent there.
func (m *Member) Clock(c *Cache) uint64 {
	if c.Known == ByEvents {
		return c.StoredTokens
	}
	return m.sentTokens.Load() + m.peersSent.Load()
}

// SentTokens is what this replica sent there, as Sent counted it.
func (m *Member) SentTokens() uint64 { return m.sentTokens.Load() }

// SetPeersSent records what the other replicas sent there.
func (m *Member) SetPeersSent(tokens uint64) { m.peersSent.Store(tokens) }

// Sent counts tokens that a request sent there makes the cache take in.
func (m *Member) Sent(uncachedTokens int) { m.sentTokens.Add(uint64(max(0, uncachedTokens))) }

// Horizon says how old, by Clock, a thing may be and still be in HBM or in a
// lower tier, if the tiers evict the least recently used first and spill
// downwards. What a tier holds now is what it can hold, once blocks left it;
// before that nothing is too old. Without KV events, HBM's capacity counts.
func (m *Member) Horizon(c *Cache) index.Horizon {
	h := index.Horizon{Now: m.Clock(c), HBM: math.MaxUint64}
	if c.Known != ByEvents {
		if capacity := m.Signals().CapacityTokens; capacity.Source != Default {
			h.HBM = uint64(capacity.Value)
		}
		return h
	}
	if !c.Evicting[kv.HBM] {
		return h
	}
	h.HBM = uint64(c.HeldTokens[kv.HBM])
	h.Total = h.HBM
	for t := kv.CPU; t < kv.NumTiers; t++ {
		if c.HeldTokens[t] == 0 {
			continue
		}
		h.Lower = t
		h.Total += uint64(c.HeldTokens[t])
		if !c.Evicting[t] {
			h.Total = math.MaxUint64
		}
		break
	}
	return h
}

// View is an immutable picture of who is in the fleet.
type View struct {
	Members []*Member
	models  map[string][]*Member
	lengths map[serving]int // tokens, where the worker told
	listed  []engine.Model
	pending bool
}

// Pending reports whether some worker has never said what it serves, so that a
// model nobody named may still exist.
func (v *View) Pending() bool { return v.pending }

// Served is a model and the members that serve it.
type Served struct {
	Model   engine.Model
	Members []*Member
}

// serving is one member's part in serving one model.
type serving struct {
	model  string
	member *Member
}

// MaxModelLen returns how many tokens, prompt and output, a member takes at
// most for a model; 0 where its worker does not say.
func (v *View) MaxModelLen(model string, m *Member) int { return v.lengths[serving{model, m}] }

// NewView returns the picture of members, not all of which need serve
// anything. A model named twice is served by both lists.
func NewView(members []*Member, served []Served) *View {
	v := &View{Members: members, models: make(map[string][]*Member), lengths: make(map[serving]int)}
	for _, s := range served {
		if s.Model.MaxModelLen > 0 {
			for _, m := range s.Members {
				v.lengths[serving{s.Model.ID, m}] = s.Model.MaxModelLen
			}
		}
		v.models[s.Model.ID] = append(v.models[s.Model.ID], s.Members...)
		i, known := slices.BinarySearchFunc(v.listed, s.Model, byID)
		if !known {
			v.listed = slices.Insert(v.listed, i, s.Model)
		} else if s.Model.MaxModelLen > v.listed[i].MaxModelLen {
			v.listed[i] = s.Model
		}
	}
	return v
}

func byID(a, b engine.Model) int { return cmp.Compare(a.ID, b.ID) }

// Serving returns the members that serve a model; known is false when no
// worker ever said it does.
func (v *View) Serving(model string) (members []*Member, known bool) {
	members, known = v.models[model]
	return members, known
}

// Models returns the union of the workers' models, by id.
func (v *View) Models() []engine.Model { return v.listed }
