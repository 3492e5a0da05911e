package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
)

// replica is what every rule has: which workers are up, what is in flight, the
// newest look at each worker's metrics, and a source of randomness of its own.
// A rule embeds it and adds Choose, and overrides what it needs to hear.
type replica struct {
	cfg    Config
	rng    *rand.Rand
	up     []bool
	ups    []int // the workers that are up, ascending
	book   book
	gauges []gauges
}

// newReplica returns replica number i of a rule, with all workers up.
func newReplica(cfg Config, rule string, i int) replica {
	r := replica{
		cfg:    cfg,
		rng:    clock.Rand(cfg.Seed, fmt.Sprintf("policy/%s/%d", rule, i)),
		up:     make([]bool, cfg.Workers),
		book:   newBook(cfg.Workers),
		gauges: make([]gauges, cfg.Workers),
	}
	for w := range cfg.Workers {
		r.up[w] = true
		r.ups = append(r.ups, w)
	}
	return r
}

// each returns the Maker of a rule whose replicas share nothing inside.
func each(make1 func(cfg Config, i int) Router) Maker {
	return func(cfg Config) []Router {
		routers := make([]Router, max(1, cfg.Replicas))
		for i := range routers {
			routers[i] = make1(cfg, i)
		}
		return routers
	}
}

// FirstToken implements Router.
func (r *replica) FirstToken(_ clock.Instant, id uint64) { r.book.firstToken(id) }

// Done implements Router.
func (r *replica) Done(_ clock.Instant, id uint64, _ Usage) { r.book.done(id) }

// Events implements Router for rules that don't follow KV events.
func (r *replica) Events(clock.Instant, int, *Batch) {}

// Scraped implements Router.
func (r *replica) Scraped(_ clock.Instant, worker int, t *engine.RankTelemetry) {
	r.gauges[worker] = gauges{known: true, t: *t, own: r.book.loads[worker]}
}

// Up implements Router. What was in flight stays booked until Done; what was
// scraped is forgotten with the worker.
func (r *replica) Up(_ clock.Instant, worker int, up bool) {
	if r.up[worker] == up {
		return
	}
	r.up[worker] = up
	at, _ := slices.BinarySearch(r.ups, worker)
	if up {
		r.ups = slices.Insert(r.ups, at, worker)
		return
	}
	r.ups = slices.Delete(r.ups, at, at+1)
	r.gauges[worker] = gauges{}
}

// send books a request on a worker, of which prefillTokens are expected to be
// computed there, and credits it against the worker's last gauges.
func (r *replica) send(req *Request, worker, prefillTokens int) {
	if worker < 0 {
		return
	}
	r.book.add(req.ID, worker, prefillTokens, nil)
	g := &r.gauges[worker]
	g.sentSince++
	g.sentTokensSince += req.PromptTokens
}

// cachedTokens is what blocks found in a cache spare of a prompt: whole blocks,
// and never the whole prompt, since an engine computes one token at least.
func cachedTokens(req *Request, blocks int) int {
	if req.BlockTokens <= 0 {
		return 0
	}
	return min(blocks, max(0, req.PromptTokens-1)/req.BlockTokens) * req.BlockTokens
}

// least keeps the worker with the lowest score offered so far; equal ones are
// drawn at random, each as likely.
type least struct {
	rng    *rand.Rand
	score  float64
	worker int // -1 before the first offer
	ties   int
}

func (r *replica) least() least { return least{rng: r.rng, worker: -1} }

func (l *least) offer(worker int, score float64) {
	switch {
	case l.worker < 0 || score < l.score:
		l.worker, l.score, l.ties = worker, score, 1
	case score == l.score:
		if l.ties++; l.rng.IntN(l.ties) == 0 {
			l.worker = worker
		}
	}
}

// fewest returns the worker of some with the fewest requests of this replica
// in flight, or -1 of none.
func (r *replica) fewest(among []int) int {
	l := r.least()
	for _, w := range among {
		l.offer(w, float64(r.book.loads[w].requests))
	}
	return l.worker
}

// two returns two different workers of some, drawn at random; the same twice
// of one, and -1 of none.
func (r *replica) two(among []int) (a, b int) {
	switch n := len(among); n {
	case 0:
		return -1, -1
	case 1:
		return among[0], among[0]
	default:
		i, j := r.rng.IntN(n), r.rng.IntN(n-1)
		if j >= i {
			j++
		}
		return among[i], among[j]
	}
}
