// Package core is the mesh without its shell: what a replica sends to which of
// its peers, and what it makes of what they send. It does no I/O, starts no
// goroutine and reads no clock, so the gateway, the simulator and the chaos
// grounds run the same code.
//
// The central type is [Core]. What happens goes in (a peer is up, a frame came,
// time passed, an engine's batch was read), frames to send and events come out.
// Start reading at [Core.Tick] for what is sent, at [Core.Receive] for what is
// done with it. Three kinds of data are spread:
//
//   - streams, the logs of what engines said (crdt.Stream): the replica that
//     reads an engine sends each batch straight to every peer;
//   - pages, what one replica says of itself (crdt.Page): likewise;
//   - tables, what anyone may say (crdt.Latest).
//
// Whoever misses something asks one peer for it: it learns what it lacks from a
// gap in what it receives, or from a peer's vector, the list of how far that one
// is with everything. Vectors are exchanged when two replicas connect and, every
// few seconds, with one peer drawn at random.
package core

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// Replica is one incarnation of a replica: the life of its process, and how
// often it was fenced in it.
type Replica struct {
	Name string // unique to the process
	Inc  uint64
}

// Kind is what a page is about.
type Kind uint8

// The kinds.
const (
	Loads     Kind = iota // what the replica has in flight, by target
	Links                 // how busy links are, by target and tier
	Fits                  // constants learned, by class of workers
	Workers               // workers discovered, by id
	Responses             // which target holds a response, by its id's hash
	Sent                  // what was sent where, for workers without KV events
	Tickets               // blocks promised by requests on their way
	Tokens                // learned tokens, by boundary
	Caches                // what the reader of a target's events found out besides its blocks, by target
	NumKinds  = 9
)

var kindNames = [NumKinds]string{"loads", "links", "fits", "workers", "responses", "sent", "tickets", "tokens", "caches"}

// String returns the kind's name as used in metrics.
func (k Kind) String() string { return kindNames[k] }

// Table is a matter on which anyone may speak.
type Table uint8

// The tables.
const (
	Boots     Table = iota // the current boot of each target
	Orders                 // what operators decided of a worker
	NumTables = 2
)

// Config sets how a core behaves; the zero value of each but Self is usable.
type Config struct {
	Self Replica
	// Batch is how long changes are gathered before they are sent, 0 means 5 ms;
	// it grows with the number of peers, once for each 32. BatchBytes sends them
	// earlier, 0 means 64 KiB.
	Batch      time.Duration
	BatchBytes int
	// SyncBytesPerSecond is how much each peer is sent at most of what it lacks;
	// 0 means 20 MB.
	SyncBytesPerSecond int
	// Compare is how often a peer drawn at random is told how far this replica
	// is with everything; 0 means 10 s.
	Compare time.Duration
	// Heartbeat is how often the page Loads is sent though nothing changed, so
	// that silence means something; 0 means 250 ms.
	Heartbeat time.Duration
	// Settled is for how long the set of replicas must not change before streams
	// go to other readers; 0 means 2 s. A dead reader is replaced at once.
	Settled time.Duration
	// Joining: others may be there already, so nobody's events are read until the
	// set of replicas has settled for the first time. Otherwise a replica that
	// does not know the others yet would take all engines for its own.
	Joining bool
	// Keep is how long the pages of a dead replica, and streams of a target's
	// former life, are kept; 0 means 60 s.
	Keep time.Duration
	// Log bounds the streams; StreamBlocks each of them, see crdt.StreamConfig.
	Log          crdt.LogConfig
	StreamBlocks int
	// Limits bound what is held of others.
	Limits Limits
	// Seed is that of all random choices.
	Seed uint64
}

func (c Config) withDefaults() Config {
	c.Batch = cmp.Or(c.Batch, 5*time.Millisecond)
	c.BatchBytes = cmp.Or(c.BatchBytes, 64<<10)
	c.SyncBytesPerSecond = cmp.Or(c.SyncBytesPerSecond, 20_000_000)
	c.Compare = cmp.Or(c.Compare, 10*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 250*time.Millisecond)
	c.Settled = cmp.Or(c.Settled, 2*time.Second)
	c.Keep = cmp.Or(c.Keep, time.Minute)
	c.Limits = c.Limits.WithDefaults()
	return c
}

// Sink is told what changed. It is called from within the core's methods and
// must not call back.
type Sink interface {
	// Changed: blocks of a target's current stream came or went; changes is valid
	// during the call.
	Changed(id crdt.StreamID, changes []index.Change)
	// Replaced: nothing of what was shown of the stream's target and source
	// counts any more; what s holds is to be shown, s nil for nothing.
	Replaced(id crdt.StreamID, s *crdt.Stream)
	// Trimmed: so many blocks of a stream's coldest tier went for want of memory,
	// all of which Changed tells too.
	Trimmed(id crdt.StreamID, tier kv.Tier, blocks int)
	// Page: a value on a peer's page came, or went if it is nil.
	Page(kind Kind, writer Replica, key string, value *crdt.PageItem)
	// Row: a table's value changed, by a peer or by Set.
	Row(table Table, row crdt.Register)
	// Told: a peer's Tell; words are valid during the call.
	Told(from string, topic Topic, words []byte)
	// Readers: which replica reads which worker may have changed; see Reads.
	Readers()
}

// Class is a lane to a peer. What is in one is received in order; lanes don't
// wait for each other.
type Class uint8

// The classes.
const (
	Live Class = iota // what has just happened, and is small
	Sync              // what a peer lacks
)

// Message is a frame to send.
type Message struct {
	To    string // a peer; empty: all that are up
	Class Class
	Frame []byte // shared between messages: not to be changed
}

// Core is one replica's part in the mesh. It is used by one goroutine at a time.
type Core struct {
	cfg  Config
	sink Sink
	rand *rand.Rand
	log  *crdt.Log

	streams   map[crdt.StreamID]*stream
	current   map[source]crdt.StreamID // by target and source, what is shown
	own       [NumKinds]ownPage
	pages     map[pageID]*page
	settled   settled
	nextMark  int // of the sorted streams, the one whose mark is told next
	following following
	tables    [NumTables]*crdt.Latest
	peers     map[string]*peer
	names     []string // of peers, sorted
	readers   []string // the replicas that read engines, sorted, this one included
	unsettle  clock.Instant

	numbers  []number // that our live frames use, in their order
	numbered int      // so many were ever used
	batch    batch
	losing   []*stream // those with batches that the peers are asked for
	out      []Message
	changes  []index.Change
	compared clock.Instant
	beat     clock.Instant
	chased   clock.Instant
	swept    clock.Instant
	met      bool // a peer told its vector
	warm     bool
	stats    Stats
}

type source struct {
	target kv.Target
	source crdt.Source
}

// Stats counts what a core did since it was made.
type Stats struct {
	Ops           uint64 // blocks in batches taken from peers and applied
	Duplicates    uint64 // batches received that were here
	Asked         uint64 // requests for what was missing
	SnapshotsSent uint64
	SnapshotsUsed uint64
	Corrupt       uint64 // equal logs that led to different bases; must stay 0
	Incomplete    uint64 // comparisons of streams that lost different batches
	LostOps       uint64 // batches given up for another replica's log
	Diverged      uint64 // agreed marks of streams that the streams here contradict; must stay 0
	Refused       uint64 // frames or parts of them that were over a bound
	BytesByClass  [2]uint64
	// BytesByKind are those of BytesByClass that were pages.
	BytesByKind [NumKinds]uint64
}

// New returns the core of a replica that knows nobody.
func New(cfg Config, sink Sink) *Core {
	cfg = cfg.withDefaults()
	c := &Core{
		cfg: cfg, sink: sink, rand: clock.Rand(cfg.Seed, "mesh"), log: crdt.NewLog(cfg.Log),
		streams: make(map[crdt.StreamID]*stream), current: make(map[source]crdt.StreamID),
		pages: make(map[pageID]*page), settled: newSettled(), peers: make(map[string]*peer), readers: []string{cfg.Self.Name},
	}
	if cfg.Joining {
		c.readers = nil
	}
	for k := range c.own {
		c.own[k].page = crdt.NewPage(cfg.Limits.PageValues)
	}
	for t := range c.tables {
		c.tables[t] = crdt.NewLatest(cfg.Limits.TableRows)
	}
	return c
}

// Self returns this replica.
func (c *Core) Self() Replica { return c.cfg.Self }

// Stats returns the counts so far.
func (c *Core) Stats() Stats { return c.stats }

// Log returns the streams, to be read.
func (c *Core) Log() *crdt.Log { return c.log }

// Out returns the frames to send, in order, and forgets them.
func (c *Core) Out() []Message {
	out := c.out
	c.out = nil
	return out
}

// send sends a frame and returns the bytes of all its copies.
func (c *Core) send(to string, class Class, frame []byte) uint64 {
	copies := 1
	if to == "" {
		copies = 0
		for _, name := range c.names {
			if c.peers[name].up {
				copies++
			}
		}
		if copies == 0 {
			return 0
		}
	}
	bytes := uint64(copies * len(frame))
	c.stats.BytesByClass[class] += bytes
	c.out = append(c.out, Message{to, class, frame})
	return bytes
}

// Tick does what time brings: it sends what was gathered and what peers lack,
// compares with a peer, and forgets the dead. It is called every few
// milliseconds.
func (c *Core) Tick(now clock.Instant) {
	if !c.batch.empty() && now.Sub(c.batch.since) >= c.batchInterval() {
		c.flush()
	}
	c.sendPages(now)
	for _, name := range c.names {
		c.serve(now, c.peers[name])
	}
	c.lookForGaps(now)
	if now.Sub(c.compared) >= c.cfg.Compare {
		c.compared = now
		if p := c.anyPeer(); p != nil {
			c.sendVector(now, p, true)
		}
	}
	c.settle(now)
	for _, s := range slices.Clone(c.losing) {
		c.settleSkip(now, s)
	}
	if now.Sub(c.swept) >= time.Second {
		c.swept = now
		c.sweep(now)
	}
}

// batchInterval is longer in a large mesh, where each frame costs more.
func (c *Core) batchInterval() time.Duration {
	return c.cfg.Batch * time.Duration(max(1, (len(c.names)+31)/32))
}

// anyPeer draws one of the peers that are up.
func (c *Core) anyPeer() *peer {
	var pick *peer
	n := 0
	for _, name := range c.names {
		if p := c.peers[name]; p.up {
			if n++; c.rand.IntN(n) == 0 {
				pick = p
			}
		}
	}
	return pick
}

func sortedInsert(list []string, name string) []string {
	if i, ok := slices.BinarySearch(list, name); !ok {
		return slices.Insert(list, i, name)
	}
	return list
}

func sortedDelete(list []string, name string) []string {
	if i, ok := slices.BinarySearch(list, name); ok {
		return slices.Delete(list, i, i+1)
	}
	return list
}
