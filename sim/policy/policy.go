// Package policy holds the routers that the laboratory compares Rhizome with:
// each peer's rule in a file of its own, faithful to what that peer ships.
//
// The central type is [Router], what one replica of a router under test sees
// and does. Whatever a rule knows of the fleet has come to it through the
// methods of that interface, with the delay and the losses that the laboratory
// put in between; nothing here can look into an engine. Start reading at
// Router, then at lmetric.go, the simplest rule that uses every kind of signal;
// replica.go and knowing.go have what it stands on. [All] lists the rules.
package policy

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

// Router is one replica of a router under test. Its methods are called from
// one goroutine, in the order in which things become known to it.
type Router interface {
	// Choose places a request and books it. The worker is one that is up as far
	// as this replica knows. The laboratory refuses requests itself while no
	// worker is up; a replica that has not heard yet that one is back chooses
	// among all.
	Choose(now clock.Instant, r *Request) Choice
	// FirstToken tells that the first byte of a request's answer came through
	// here, Done that the answer ended.
	FirstToken(now clock.Instant, id uint64)
	Done(now clock.Instant, id uint64, u Usage)
	// Events brings what one step of a worker's engine did to its cache.
	Events(now clock.Instant, worker int, b *Batch)
	// Scraped brings a look at a worker's metrics.
	Scraped(now clock.Instant, worker int, t *engine.RankTelemetry)
	// Up tells that a worker answers, or doesn't any more; all do at first. One
	// that comes back after a restart starts with an empty cache. Its first
	// batches of events may come before the news that it is back, and if it was
	// away for a moment only, all that tells of it is a batch numbered 0.
	Up(now clock.Instant, worker int, up bool)
}

// Request is what a router reads from a request. It must not be changed, nor
// kept longer than until Done.
type Request struct {
	ID uint64
	// Session is what a client's session header names; empty when unknown.
	Session string
	// Workflow names the run of an agent that the request is a step of; empty
	// where agents announce nothing.
	Workflow string
	// Tenant and Tool are labels that some clients send.
	Tenant, Tool string
	// Keys name the prompt's whole blocks of BlockTokens tokens: equal keys are
	// equal prefixes. The keys in Events are of the same kind.
	Keys         []kv.Key
	BlockTokens  int
	PromptTokens int
	MaxTokens    int // the client's limit on the answer; 0 when not given
}

// Choice is where a request goes.
type Choice struct {
	Worker int
	// After is how long the choice took beyond the laboratory's own allowance:
	// a call to an index service, say.
	After time.Duration
	// CachedTokens is what the router expects the worker not to compute; 0 of
	// routers that expect nothing.
	CachedTokens int
}

// Usage is what a finished answer tells.
type Usage struct {
	PromptTokens, CachedTokens, CompletionTokens int
	// Failed says that the answer broke off, Refused that the worker would not
	// begin with it, for want of room.
	Failed, Refused bool
}

// Batch is what one engine step did to a worker's cache.
type Batch struct {
	Seq  uint64 // contiguous from 0 for each life of the worker
	Life int    // which of its lives that is: another number for each
	// Ops are the events as the engine sent them.
	Ops []kv.Op
	// Changes is what follows from them: which keys are on which tier now and
	// were not before, or the other way round. Copies of one block are counted,
	// so a key is told when its first copy comes and when its last one goes.
	Changes []Change
}

// Change is one key's coming to a tier or going from it.
type Change struct {
	Key     kv.Key
	Tier    kv.Tier
	Present bool
}

// Peer is implemented by routers whose replicas tell each other things.
type Peer interface {
	// Tell returns what to tell the other replicas now; nil: nothing. It is
	// called after each of the methods of Router and every few milliseconds.
	Tell(now clock.Instant) any
	// Hear brings what another replica said, later and perhaps not at all.
	Hear(now clock.Instant, from int, said any)
}

// Config is what a router is told of its fleet before it starts.
type Config struct {
	Workers     int // at least 1
	Replicas    int // all of the same router, at least 1
	BlockTokens int
	Seed        uint64
	// IndexDown reports whether an external index service is out of reach; nil
	// when it never is. Only routers that ask one look at it.
	IndexDown func(now clock.Instant) bool
}

// Maker makes the replicas of one router: Config.Replicas of them. What they
// share without telling each other (an external index, say) they share inside.
type Maker func(Config) []Router
