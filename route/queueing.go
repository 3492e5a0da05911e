package route

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
)

// ErrQueueFull says that every worker is saturated and as many requests wait
// for one as may.
var ErrQueueFull = errors.New("all workers are saturated and the router's queue is full")

// ErrQueueWait says that a request waited as long as it may and no worker had
// room for it.
var ErrQueueWait = errors.New("all workers were saturated for as long as a request waits in the router's queue")

// ErrQueueClosed says that the queue was closed while the request was in it.
var ErrQueueClosed = errors.New("the router's queue is closed")

// QueueError is [ErrQueueFull] or [ErrQueueWait] with advice.
type QueueError struct {
	Err error
	// RetryAfter is when to try again: how long those waited that were placed
	// last, at least a second.
	RetryAfter time.Duration
}

func (e *QueueError) Error() string { return e.Err.Error() }
func (e *QueueError) Unwrap() error { return e.Err }

// placedAtOnce bounds how many requests one event places. What it leaves the
// first tokens and ends of those placed will see to.
const placedAtOnce = 16

// backlog is the queue with what is counted about it.
type backlog struct {
	queue
	closed   bool
	lastWait time.Duration // of the request placed last
	stats    QueueStats
}

// Enter places q, or has it wait for its turn where every worker is saturated
// (see [QueueConfig]). It returns the decision, or the request's place in the
// queue, or an error: one of the three. Errors are those of Decide and
// [QueueError].
//
// Who waits is told once by placed, at some later event or before Enter
// returns: the decision, which wants its Done like any other, or an error. It
// is not told after Leave returned true. placed is called with the router's
// lock held: it must return at once and must not call the router.
//
// Requests that were tried before (Query.Exclude) and those that are pinned
// don't wait: the former have waited, and with one worker to go to there is
// nothing to gain by binding late.
func (r *Router) Enter(q Query, placed func(*Decision, error)) (*Decision, *Waiting, error) {
	s, err := r.find(&q)
	if err != nil {
		return nil, nil, err
	}
	defer r.searches.Put(s)
	now := s.now
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judgeDue(now)
	request, z, err := r.priceAll(s, &q)
	if err != nil {
		return nil, nil, err
	}
	mayWait := r.queueing() && len(q.Exclude) == 0 && q.Pin == ""
	if !mayWait || r.queue.line(q.Prompt.Model) == nil && r.anyOpen(request) {
		d := new(Decision)
		r.place(now, &q, request, &z, 0, d)
		return d, nil, nil
	}
	w := &Waiting{query: q, since: now, maxWait: r.cfg.Queue.MaxWait, merit: r.merit(now, &q, request), placed: placed}
	room := r.anyOpen(request)
	r.expireQueue(now)
	if room && r.queue.size >= r.cfg.Queue.MaxRequests {
		r.drainQueue(now, nil)
	}
	if r.queue.size >= r.cfg.Queue.MaxRequests {
		r.queue.stats.Full++
		return nil, nil, r.queueError(ErrQueueFull)
	}
	r.queue.add(w)
	r.queue.stats.Entered++
	if room {
		r.drainQueue(now, nil)
	}
	return nil, w, nil
}

// Leave takes a request out of the queue whose client is gone. It returns false
// where the request was told its place already, or that there is none.
func (r *Router) Leave(w *Waiting) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.queue.remove(w) {
		return false
	}
	r.queue.stats.Left++
	return true
}

// Examine looks at the queue because time has passed, or because m has said
// something of itself: those whose time is over are told so, and others placed
// if m, or any worker where m is nil, has room. What m said counts in decisions
// from now on. While nobody waits it costs next to nothing.
func (r *Router) Examine(m *fleet.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	if m != nil {
		r.happened(now, m)
	}
	r.freed(now, m)
}

// CloseQueue ends all waiting with [ErrQueueClosed], and lets nobody wait from
// now on: requests go to a worker at once.
func (r *Router) CloseQueue() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.closed = true
	for w := r.queue.oldest; w != nil; w = r.queue.oldest {
		r.queue.remove(w)
		r.queue.stats.Closed++
		w.placed(nil, ErrQueueClosed)
	}
}

// requeue looks at those who wait by what is configured now.
func (r *Router) requeue() {
	now := r.deps.Clock.Now()
	if r.queueing() {
		r.expireQueue(now)
		r.drainQueue(now, nil)
		return
	}
	for w := r.queue.next(now); w != nil; w = r.queue.next(now) {
		r.placeWaiting(now, w, false)
	}
}

// freed looks at the queue because m, or any worker where m is nil, may have less
// to do.
func (r *Router) freed(now clock.Instant, m *fleet.Member) {
	if r.queue.size > 0 {
		r.expireQueue(now)
		r.drainQueue(now, m)
	}
}

// queueing reports whether requests may wait here now.
func (r *Router) queueing() bool {
	return r.cfg.Queue.Enabled && !r.queue.closed && (r.cfg.Policy == Rhizome || r.cfg.Policy == ArticleCost)
}

// open reports whether c has so little to do that a request may go there. A
// limit of sequences that nobody told or saw is not believed: a worker can't
// show that it takes more while nobody sends it more.
func (r *Router) open(c *candidate, request cost.Request) bool {
	limits := &r.cfg.Queue
	t := &c.terms
	if micros(t.QueueMicros) > limits.TTFTObjective {
		return false
	}
	if micros(t.AdmissionMicros) <= limits.Admission {
		return true
	}
	if c.signals.MaxSeqs.Source != fleet.Default {
		return false
	}
	class := c.class
	class.MaxSeqs = 0
	free := cost.Score(&class, &c.load, request, c.hit, r.cfg.Weights)
	return micros(free.AdmissionMicros) <= limits.Admission
}

func micros(x float64) time.Duration { return time.Duration(x * float64(time.Microsecond)) }

// anyOpen reports whether one of r.cands has room.
func (r *Router) anyOpen(request cost.Request) bool {
	for i := range r.cands {
		if r.open(&r.cands[i], request) {
			return true
		}
	}
	return false
}

// minWorkMicros keeps a merit finite.
const minWorkMicros = 1

// merit is what a request's turn goes by: its weight per second of the work that
// it is on the best of r.cands, which is prefill, load and its own decode at the
// full rate, without any wait. Under the policy article it is one over the least
// cost.
func (r *Router) merit(now clock.Instant, q *Query, request cost.Request) float64 {
	if r.cfg.Policy == ArticleCost {
		r.priceArticle(now, q, request)
	}
	best := r.least()
	work := best.total
	if r.cfg.Policy != ArticleCost {
		t := cost.Score(&best.class, &best.load, request, best.hit, cost.Weights{OwnDecode: 1})
		work = t.PrefillMicros + t.LoadMicros + t.OwnDecodeMicros
	}
	weight := q.Weight
	if weight <= 0 {
		weight = 1
	}
	return weight * 1e6 / max(minWorkMicros, work)
}

func (r *Router) queueError(err error) error {
	return &QueueError{err, max(time.Second, r.queue.lastWait)}
}

// expireQueue tells those whose time is over.
func (r *Router) expireQueue(now clock.Instant) {
	for w := r.queue.oldest; w != nil && now.Sub(w.since) >= r.cfg.Queue.MaxWait; w = r.queue.oldest {
		r.queue.remove(w)
		r.queue.stats.TimedOut++
		w.placed(nil, r.queueError(fmt.Errorf("%w (%v)", ErrQueueWait, r.cfg.Queue.MaxWait)))
	}
}

// drainQueue places those whose turn it is while m, or any worker where m is
// nil, has room for them.
func (r *Router) drainQueue(now clock.Instant, m *fleet.Member) {
	for range placedAtOnce {
		w := r.queue.next(now)
		for w != nil && (m != nil && !r.roomOn(now, m, w) || !r.placeFrom(now, w)) {
			w.line.passed = true
			w = r.queue.next(now)
		}
		if w == nil {
			break
		}
	}
	for _, l := range r.queue.lines {
		l.passed = false
	}
}

const (
	// homesTried bounds how many requests are looked at for one whose best worker
	// has room, before the first of them takes what room there is.
	homesTried = 4
	// mostOvertaken is how often a request lets others of its priority go first
	// for that.
	mostOvertaken = 4
)

// placeFrom places first, whose turn it is, or one of the next few if that is
// cheapest on a worker that has room and first is not: what a prompt's own
// worker holds of it is lost elsewhere. It returns false when none has room.
func (r *Router) placeFrom(now clock.Instant, first *Waiting) bool {
	line, priority := first.line, first.query.Hints.Priority
	var skipped [homesTried]*Waiting
	n := 0
	var done placing
	for w := first; ; {
		if done = r.placeWaiting(now, w, w.overtaken < mostOvertaken); done != elsewhere {
			break
		}
		w.skip, skipped[n] = true, w
		n++
		next := r.queue.next(now)
		if n == homesTried || next == nil || next.line != line || next.query.Hints.Priority != priority {
			break
		}
		w = next
	}
	for _, w := range skipped[:n] {
		w.skip = false
		if done == placed {
			w.overtaken++
		}
	}
	if done != placed && n > 0 {
		done = r.placeWaiting(now, first, false)
	}
	return done == placed
}

// roomOn reports whether m serves w's model and has room for it. It prices that
// member alone, so that an event costs the same however many workers there are.
func (r *Router) roomOn(now clock.Instant, m *fleet.Member, w *Waiting) bool {
	members, _ := r.deps.Fleet.View().Serving(w.query.Prompt.Model)
	at := slices.Index(members, m)
	if at < 0 {
		return false
	}
	s := r.searches.Get().(*search)
	defer r.searches.Put(s)
	s.now, s.members = now, members[at:at+1]
	r.match(s, w.query.Prompt)
	hits := s.hits
	z := r.size(&w.query, s.deepest)
	request := r.requestOf(&w.query, &z)
	r.probe = candidate{member: m}
	r.price(now, &r.probe, &hits[0], &z, w.query.Prompt, request)
	return r.open(&r.probe, request)
}

// placing is what came of an attempt to place a request.
type placing uint8

const (
	noRoom placing = iota
	elsewhere
	placed
)

// placeWaiting places w on the best worker that has room, or tells it why it
// can't be placed at all. With atHome it does so only if that is the best of all
// workers, and else says elsewhere.
func (r *Router) placeWaiting(now clock.Instant, w *Waiting, atHome bool) placing {
	s, err := r.find(&w.query)
	var request cost.Request
	var z sizing
	if err == nil {
		defer r.searches.Put(s)
		request, z, err = r.priceAll(s, &w.query)
	}
	if err != nil {
		r.queue.remove(w)
		r.queue.stats.Failed++
		w.placed(nil, err)
		return placed
	}
	if r.queueing() {
		if atHome && !r.open(r.least(), request) && r.anyOpen(request) {
			return elsewhere
		}
		r.cands = slices.DeleteFunc(r.cands, func(c candidate) bool { return !r.open(&c, request) })
	}
	if len(r.cands) == 0 {
		return noRoom
	}
	r.queue.remove(w)
	waited := now.Sub(w.since)
	r.queue.lastWait = waited
	r.queue.stats.place(waited)
	d := new(Decision)
	r.place(now, &w.query, request, &z, waited, d)
	w.placed(d, nil)
	return placed
}

// least returns the cheapest of r.cands.
func (r *Router) least() *candidate {
	least := &r.cands[0]
	for i := range r.cands {
		if r.cands[i].total < least.total {
			least = &r.cands[i]
		}
	}
	return least
}
