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
	ups    []int // the workers to choose among, ascending: those up, or all if none is
	book   book
	gauges []gauges
	some   []int // to be used anew by each decision
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
	}
	r.countUps()
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
	if !up {
		r.gauges[worker] = gauges{}
	}
	r.countUps()
}

// countUps sets the workers to choose among. When all seem to be down, one may
// be back without this replica having heard of it.
func (r *replica) countUps() {
	r.ups = r.ups[:0]
	anyUp := slices.Contains(r.up, true)
	for w, up := range r.up {
		if up || !anyUp {
			r.ups = append(r.ups, w)
		}
	}
}

// send books a request on a worker, of which prefillTokens are expected to be
// computed there, and credits it against the worker's last gauges.
func (r *replica) send(req *Request, worker, prefillTokens int) {
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
// in flight.
func (r *replica) fewest(among []int) int {
	l := r.least()
	for _, w := range among {
		l.offer(w, float64(r.book.loads[w].requests))
	}
	return l.worker
}

// two returns two different workers of some, drawn at random; of one, it twice.
func (r *replica) two(among []int) (a, b int) {
	n := len(among)
	if n == 1 {
		return among[0], among[0]
	}
	i, j := r.rng.IntN(n), r.rng.IntN(n-1)
	if j >= i {
		j++
	}
	return among[i], among[j]
}
