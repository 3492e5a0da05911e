package route

import (
	"fmt"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// Cause is why a worker had less of a prompt cached than predicted, or more.
type Cause uint8

// The causes.
const (
	// Exact: it had what was predicted, to within a block or chunk.
	Exact Cause = iota
	// Under: it had more.
	Under
	// Promised: what was missing had been promised by a request in flight, and
	// had not come about yet, or never did.
	Promised
	// Residency: what was missing left the cache after the decision, or the news
	// of the cache had a gap. The worker is charged.
	Residency
	// Render: nothing left the cache and no news was lost, so the prompt must
	// have been another one than was thought. What told its tokens is charged.
	Render
	// Unwitnessed: nobody can tell, as where a worker has no KV events.
	Unwitnessed
	numCauses
)

var causeNames = [numCauses]string{"exact", "under", "promised", "residency", "render", "unwitnessed"}

// String returns the cause's name as used in metrics.
func (c Cause) String() string { return causeNames[c] }

// MarshalText makes the cause its name in JSON.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Cause) UnmarshalText(text []byte) error {
	i := slices.Index(causeNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown cause %q", text)
	}
	*c = Cause(i)
	return nil
}

// Audit is a prediction beside what came of it.
type Audit struct {
	Cause Cause `json:"cause"`
	// ShortTokens is how many predicted tokens were not cached; less than 0:
	// more were.
	ShortTokens int `json:"short_tokens"`
	// Pending says that the cause waits for news of the cache that may be under
	// way; until then it is Unwitnessed.
	Pending bool `json:"pending,omitempty"`
}

// prediction is what a decision keeps of its hit, so that it can be judged.
type prediction struct {
	mark   index.Mark
	slot   index.Slot
	feed   fleet.FeedState
	source string
	keys   []kv.Key // of the blocks for which the index spoke
	block  int      // tokens
	tokens int      // the hit, before it was discounted
	told   int      // tokens of it for which the index spoke; the rest was sent there
	sure   int      // tokens of those that are no mere promise
	grain  int      // tokens by which a hit may be off
}

// lowerChunk is by how many tokens a hit on a lower tier may be off: those move
// in chunks of 256 tokens in LMCache by default.
const lowerChunk = 256

// predict notes what c's hit rests on.
func (r *Router) predict(now clock.Instant, c *candidate, q *prompt.Request) prediction {
	p := prediction{
		mark: c.mark, slot: c.cache.Slot, tokens: int(c.hit.Tokens()) + c.discounted, grain: max(c.cache.BlockTokens, defaultBlockTokens),
		feed: c.member.FeedState(now), source: c.source, block: c.cache.BlockTokens,
	}
	switch c.source {
	case fromEvents:
		p.keys = q.TokenKeys(c.form)
	case fromLearned:
		p.keys = c.known.Keys
	default:
		p.grain = max(p.grain, sentBlockTokens)
	}
	if p.byEvents() {
		p.told, p.sure = min(p.tokens, c.told*p.block), min(p.tokens, c.sure*p.block)
	}
	if c.hit.LowerTokens > 0 {
		p.grain = max(p.grain, lowerChunk)
	}
	return p
}

// byEvents reports whether the index spoke for the hit.
func (p *prediction) byEvents() bool { return p.source == fromEvents || p.source == fromLearned }

// audits judges predictions, and keeps the results for each worker.
type audits struct {
	workers map[kv.Target]*workerAudit
	room    int // how many of these there may be before those of targets that are gone are dropped
	// pending are those that wait for news under way, in the order in which
	// they came.
	pending []pendingAudit
}

// maxPending bounds how many judgements wait: more are made at once.
const maxPending = 4096

type pendingAudit struct {
	due    clock.Instant
	of     judged
	actual int
}

// judged is what of a decision is judged.
type judged struct {
	id        string
	target    kv.Target
	member    *fleet.Member
	query     *prompt.Request
	render    prompt.Class
	predicted prediction
}

func (d *Decision) judged() judged {
	return judged{d.ID, d.Target, d.member, d.query, d.RenderClass, d.predicted}
}

// leastAuditRoom is how many targets have results before any are dropped.
const leastAuditRoom = 64

func newAudits() audits {
	return audits{workers: make(map[kv.Target]*workerAudit), room: leastAuditRoom}
}

// auditOf returns a target's results. There are at most about twice as many as
// targets in the fleet: those of others are dropped when the metrics are read,
// and when there are too many.
func (r *Router) auditOf(t kv.Target) *workerAudit {
	a := &r.audits
	w := a.workers[t]
	if w == nil {
		if len(a.workers) >= a.room {
			a.keep(r.deps.Fleet.View().Members)
			a.room = max(leastAuditRoom, 2*len(a.workers))
		}
		w = newWorkerAudit()
		a.workers[t] = w
	}
	return w
}

// audit takes what a response told of its cached tokens. A hit that fell short
// is judged once the news of what left the cache before its first token had
// the time to come.
func (r *Router) audit(now clock.Instant, d *Decision, actual int) {
	due := now.Add(confirmLag)
	if d.firstByte {
		due = d.seen.firstAt.Add(confirmLag)
	}
	if d.predicted.tokens-actual < d.predicted.grain || due <= now || len(r.audits.pending) >= maxPending {
		of := d.judged()
		r.judge(now, &of, actual)
		return
	}
	r.audits.pending = append(r.audits.pending, pendingAudit{due, d.judged(), actual})
	r.ring.update(d.ID, func(e *Explanation) {
		e.Audit = &Audit{Cause: Unwitnessed, ShortTokens: d.predicted.tokens - actual, Pending: true}
	})
}

// judgeDue judges those that waited long enough.
func (r *Router) judgeDue(now clock.Instant) {
	p := r.audits.pending
	n := 0
	for n < len(p) && p[n].due <= now {
		r.judge(now, &p[n].of, p[n].actual)
		n++
	}
	if n > 0 {
		r.audits.pending = slices.Delete(p, 0, n)
	}
}

// judge finds the cause of a difference and charges it.
func (r *Router) judge(now clock.Instant, d *judged, actual int) {
	p := &d.predicted
	feed := d.member.FeedState(now)
	cause := p.cause(actual, feed, r.deps.Index)
	switch cause {
	case Exact, Under:
		if p.byEvents() && p.tokens > 0 {
			d.member.Kept(now, 1, 1)
		}
	case Residency:
		if p.feed.Healthy && feed.Healthy {
			d.member.Kept(now, float64(actual)/float64(p.told), 1)
		}
	case Render:
		if p.source == fromLearned {
			r.deps.Learned.Fault(now, d.render, d.query, actual, p.block)
		}
	}
	r.auditOf(d.target).count(cause, p.tokens-actual)
	r.ring.update(d.id, func(e *Explanation) { e.Audit = &Audit{Cause: cause, ShortTokens: p.tokens - actual} })
}

// cause attributes the difference between a prediction and what was cached.
func (p *prediction) cause(actual int, feed fleet.FeedState, x *index.Index) Cause {
	short := p.tokens - actual
	switch {
	case short <= -p.grain:
		return Under
	case short < p.grain:
		return Exact
	case p.told-actual < p.grain: // nobody saw the rest
		return Unwitnessed
	case p.sure-actual < p.grain:
		return Promised
	case !p.feed.Healthy || feed != p.feed:
		return Residency
	}
	last := min(len(p.keys), p.told/p.block)
	switch x.RemovedSince(p.mark, p.slot, p.keys[min(last, actual/p.block):last]) {
	case index.SomeRemoved:
		return Residency
	case index.NoneRemoved:
		return Render
	}
	return Unwitnessed
}
