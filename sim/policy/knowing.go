package policy

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// follower is a replica that knows the workers' caches from their KV events.
type follower struct {
	replica
	caches matcher
	feeds  bool // the events that this replica hears keep caches up to date
	// rpc is what asking for caches takes, 0 where they are the replica's own;
	// down tells whether they are out of reach, nil: never.
	rpc  time.Duration
	down func(clock.Instant) bool
}

// newFollower returns a replica with an index of its own.
func newFollower(cfg Config, rule string, i int) follower {
	return follower{replica: newReplica(cfg, rule, i), caches: newMatcher(newEvents(cfg)), feeds: true}
}

// indexRPC is what a question to an index service takes.
const indexRPC = 2 * time.Millisecond

// sharing returns the Maker of a rule whose replicas all ask one index
// service, which the first one's events feed.
func sharing(rule string, make1 func(follower) Router) Maker {
	return func(cfg Config) []Router {
		shared := newEvents(cfg)
		return each(func(cfg Config, i int) Router {
			return make1(follower{replica: newReplica(cfg, rule, i), caches: newMatcher(shared), feeds: i == 0,
				rpc: indexRPC, down: cfg.IndexDown})
		})(cfg)
	}
}

func (f *follower) outOfReach(now clock.Instant) bool { return f.down != nil && f.down(now) }

// Events implements Router.
func (f *follower) Events(_ clock.Instant, worker int, b *Batch) {
	if f.feeds {
		f.caches.apply(worker, b)
	}
}

// Up implements Router.
func (f *follower) Up(now clock.Instant, worker int, up bool) {
	if f.feeds && !up && f.up[worker] {
		f.caches.forget(worker)
	}
	f.replica.Up(now, worker, up)
}

// rememberer is a replica that guesses the workers' caches from what it sent
// where.
type rememberer struct {
	replica
	tree *tree
}

func newRememberer(cfg Config, rule string, i, capBlocks int) rememberer {
	return rememberer{newReplica(cfg, rule, i), newTree(cfg.Workers, capBlocks)}
}

// Up implements Router.
func (m *rememberer) Up(now clock.Instant, worker int, up bool) {
	if !up {
		m.tree.forget(worker)
	}
	m.replica.Up(now, worker, up)
}
