package route

import (
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// Where a hit is known from.
const (
	fromEvents  = "events"  // the worker's KV events, and what was promised since, of a prompt given as token ids
	fromLearned = "learned" // the same of a text whose tokens were learned, and beyond these what was sent
	fromSent    = "sent"    // this router's own routings, aged
	fromSession = "session" // what the session's last worker was sent last, aged
)

// matched is what one member holds of a prompt, before its size is known.
type matched struct {
	cache  *fleet.Cache
	run    index.Run
	sure   int        // entries of run that events have confirmed
	inHBM  int        // leading ones of these in HBM
	mark   index.Mark // from before the match
	source string
	// What run counts: blocks of that form, or chunks.
	form   prompt.Form
	chunks []prompt.Chunk
	// Of a text: how the member turns it into tokens, what is known of these
	// there, which run counts blocks of then, and how many chunks were sent.
	class prompt.Class
	known prompt.Known
	sent  index.Run
}

// search is what a decision looks for outside the router's lock: who may serve a
// request, and what they hold of its prompt.
type search struct {
	now     clock.Instant
	view    *fleet.View
	members []*fleet.Member // that may serve it; where pooled, all that serve its model
	hits    []matched       // by member; where sparse, of those that hold something
	pooled  bool            // members are many, so that not each will be looked at
	sparse  bool
	holders []int32 // where sparse: whose each hit is, by the place in view.Members
	seats   *seats
	mark    index.Mark
	deepest prompt.Known       // most that is known of a text's tokens on one of them
	blank   matched            // scratch
	hitOf   []int32            // scratch of matchText: which hit is whose, from 1 on
	found   []index.Hit        // scratch
	bySlot  map[index.Slot]int // scratch
	fit     []*fleet.Member    // scratch
}

// place returns whose the k-th hit is, as a place in a pool; -1: nobody's.
func (s *search) place(p *pool, k int) int32 {
	if !s.sparse {
		return int32(k)
	}
	return p.inView[s.holders[k]]
}

// held returns what the i-th member of a pool was found to hold, once
// takeHolders has been through; nil: nothing.
func (s *search) held(p *pool, i int32) *matched {
	if !s.sparse {
		return &s.hits[i]
	}
	if e := &p.entries[i]; e.heldBy == p.epoch {
		return &s.hits[e.hit]
	}
	return nil
}

// none is what a member holds that was not found to hold anything.
func (r *Router) none(s *search, m *fleet.Member, p *prompt.Request) matched {
	h := matched{cache: m.CacheAt(), mark: s.mark}
	b, fed := blocksOf(h.cache)
	switch {
	case !fed:
	case len(p.Tokens) > 0:
		h.form = b.form(p)
	case r.deps.Learned != nil:
		h.class = prompt.Class(m.RenderClass(p.Model, h.cache.Slot, s.now))
		h.known = r.deps.Learned.Find(p, h.class, b.form(p))
	}
	return h
}

// match finds what every member holds of the prompt. Token ids match against
// the index where the worker's events feed it, and so does as much of a text as
// its tokens are known; everything else against what was sent there.
func (r *Router) match(s *search, p *prompt.Request) {
	members := s.members
	s.sparse, s.mark = false, r.deps.Index.Mark()
	s.hits = slices.Grow(s.hits[:0], len(members))[:len(members)]
	s.deepest = prompt.Known{}
	if s.bySlot == nil {
		s.bySlot = make(map[index.Slot]int)
	}
	clear(s.bySlot)
	out, bySlot := s.hits, s.bySlot
	bySent := false
	for i, m := range members {
		out[i] = r.none(s, m, p)
		if !m.Outdated() {
			bySlot[out[i].cache.Slot] = i
		}
		s.note(out[i].known)
		bySent = bySent || out[i].form.BlockTokens == 0
	}
	for _, form := range forms(out) {
		s.found = r.deps.Index.Match(p.TokenKeys(form), s.found[:0])
		for j := range s.found {
			if i, ok := bySlot[s.found[j].Slot]; ok && out[i].form == form {
				out[i].take(s.now, members[i], &s.found[j], fromEvents)
			}
		}
	}
	for _, k := range knowns(out) {
		s.found = r.deps.Index.Match(k.Keys, s.found[:0])
		for j := range s.found {
			if i, ok := bySlot[s.found[j].Slot]; ok && same(out[i].known, k) {
				out[i].take(s.now, members[i], &s.found[j], fromLearned)
			}
		}
	}
	if !bySent {
		return
	}
	keys, chunks := sentKeys(p)
	s.found = r.deps.Approx.Match(keys, func(slot index.Slot) index.Horizon {
		if i, ok := bySlot[slot]; ok {
			return members[i].Horizon(out[i].cache)
		}
		return index.Horizon{}
	}, s.found[:0])
	for _, h := range s.found {
		i, ok := bySlot[h.Slot]
		switch {
		case !ok || out[i].form.BlockTokens > 0:
		case len(out[i].known.Keys) > 0:
			out[i].sent = h.Run
		default:
			out[i].run, out[i].source, out[i].chunks = h.Run, fromSent, chunks
		}
	}
}

// take takes what the index says that a member holds.
func (x *matched) take(now clock.Instant, m *fleet.Member, h *index.Hit, source string) {
	x.run, x.source, x.sure, x.inHBM = h.Promised, source, h.Run.Len(), h.Run.HBM
	if m.Stalled(now) {
		x.run.HBM, x.run.Lower = h.Promised.HBM/2, h.Promised.Lower/2
	}
}

// note remembers most of what is known of a text.
func (s *search) note(k prompt.Known) {
	if k.Tokens > s.deepest.Tokens {
		s.deepest = k
	}
}

// matchHolders is match for those alone that hold something of the prompt: it asks
// only those that were found.
func (r *Router) matchHolders(s *search, p *prompt.Request) {
	s.sparse, s.mark, s.deepest = true, r.deps.Index.Mark(), prompt.Known{}
	s.seats = r.seatsOf(s.now, s.view)
	if r.holdersBy(s, p) {
		return
	}
	s.seats.isStale.Store(true)
	if now := r.seatsOf(s.now, s.view); now != s.seats {
		s.seats = now
		r.holdersBy(s, p)
	}
}

// holdersBy finds the holders by the search's seats. It returns false where it
// found some that have no seat.
func (r *Router) holdersBy(s *search, p *prompt.Request) (all bool) {
	all = true
	s.hits, s.holders = s.hits[:0], s.holders[:0]
	if len(p.Tokens) == 0 {
		return r.matchText(s, p)
	}
	for form := range s.seats.forms(p) {
		s.found = r.deps.Index.Match(p.TokenKeys(form), s.found[:0])
		for j := range s.found {
			i := s.seats.at(s.found[j].Slot)
			if i < 0 {
				all = false
				continue
			}
			m := s.view.Members[i]
			h := matched{cache: m.CacheAt(), mark: s.mark}
			if b, fed := blocksOf(h.cache); fed && b.form(p) == form {
				h.form = form
				h.take(s.now, m, &s.found[j], fromEvents)
				s.hits, s.holders = append(s.hits, h), append(s.holders, i)
			}
		}
	}
	if !s.seats.unfed {
		return all
	}
	all = r.findSent(s, p.TokenKeys(sentForm)) && all
	for _, found := range s.found {
		i := s.seats.at(found.Slot)
		if i < 0 {
			continue // it just left
		}
		c := s.view.Members[i].CacheAt()
		if _, fed := blocksOf(c); !fed {
			s.hits = append(s.hits, matched{cache: c, mark: s.mark, run: found.Run, source: fromSent})
			s.holders = append(s.holders, i)
		}
	}
	return all
}

// knowns returns the different leading parts of a text whose tokens are known.
func knowns(all []matched) []prompt.Known {
	var out []prompt.Known
	for i := range all {
		k := all[i].known
		if len(k.Keys) > 0 && !slices.ContainsFunc(out, func(o prompt.Known) bool { return same(o, k) }) {
			out = append(out, k)
		}
	}
	return out
}

// same reports whether two known parts of one text are one: of one class, in
// one form.
func same(a, b prompt.Known) bool {
	return len(a.Keys) > 0 && len(a.Keys) == len(b.Keys) && &a.Keys[0] == &b.Keys[0]
}

// forms returns the different forms in use.
func forms(all []matched) []prompt.Form {
	var out []prompt.Form
	for i := range all {
		if f := all[i].form; f.BlockTokens > 0 && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// sentBlockTokens is the chunk of a token-id prompt sent to a worker that has
// no KV events.
const sentBlockTokens = 64

var sentForm = prompt.Form{BlockTokens: sentBlockTokens}

// sentKeys returns the keys under which a prompt is remembered as sent.
func sentKeys(p *prompt.Request) ([]kv.Key, []prompt.Chunk) {
	chunks := p.Chunks()
	if len(chunks) == 0 {
		return p.TokenKeys(sentForm), nil
	}
	return p.ChunkKeys(), chunks
}

// tokens turns a match into tokens of a prompt of that size: at most all whole
// blocks but the one that holds the last token, which is always computed.
func (m *matched) tokens(z *sizing) cost.Hit {
	block := m.cache.BlockTokens
	var hbm, all float64
	switch {
	case m.run.Len() == 0:
		return cost.Hit{}
	case m.chunks != nil:
		hbm, all = z.sent(m.run.HBM), z.sent(m.run.Len())
	case m.form.BlockTokens == 0 && m.source == fromSent:
		hbm, all = float64(m.run.HBM*sentBlockTokens), float64(m.run.Len()*sentBlockTokens)
	default:
		hbm, all = float64(m.run.HBM*block), float64(m.run.Len()*block)
		hbm, all = m.beyond(z, hbm, all)
	}
	if block == 0 {
		block = defaultBlockTokens
	}
	most := float64((int(z.total) - 1) / block * block)
	whole := func(x float64) float64 { return min(most, float64(int(x)/block*block)) }
	hbm, all = whole(hbm), whole(all)
	return cost.Hit{HBMTokens: hbm, LowerTokens: all - hbm, Tier: m.run.Tier}
}

// unknown reports whether neither blocks nor bytes tell what a member holds of
// the prompt.
func (m *matched) unknown() bool {
	return m.source == "" && m.form.BlockTokens == 0 && len(m.known.Keys) == 0
}

// endsKnown reports whether a member holds all that is known of a text's tokens,
// and nothing tells what it holds behind them: of a conversation that an earlier
// process served often the head alone is known.
func (m *matched) endsKnown() bool {
	n := len(m.known.Keys)
	return n > 0 && m.run.Len() >= n && m.sent.Len() <= m.known.Chunks
}

// beyond adds to what a member holds of the known part of a text, if it holds
// all of it, what was sent there behind that.
func (m *matched) beyond(z *sizing, hbm, all float64) (float64, float64) {
	if len(m.known.Keys) == 0 || m.run.Len() < len(m.known.Keys) || m.sent.Len() < m.known.Chunks {
		return hbm, all
	}
	known := float64(m.known.Tokens)
	all = max(all, known+z.sent(m.sent.Len())-z.sentTo(m.known.Chunks))
	if m.run.Lower == 0 {
		hbm = all
		if m.sent.Lower > 0 { // it left HBM, by its age
			hbm = max(float64(m.run.HBM*m.cache.BlockTokens), known+z.sentTo(max(m.sent.HBM, m.known.Chunks))-z.sentTo(m.known.Chunks))
			m.run.Tier = m.sent.Tier
		}
	}
	return hbm, all
}

// defaultBlockTokens is vLLM's block size, assumed until a worker told its own.
const defaultBlockTokens = 16

// confirmLag is how long after the first token the events of a prompt's last
// block may take.
const confirmLag = 2 * time.Second

// promise records that the chosen member will hold the prompt: in the index
// until its events say so, and among what was sent.
func (r *Router) promise(now clock.Instant, d *Decision, c *candidate) {
	d.slot = c.cache.Slot
	keys := c.known.Keys
	if c.form.BlockTokens > 0 {
		keys = d.query.TokenKeys(c.form)
	}
	if len(keys) > 0 {
		deadline := now.Add(c.group.promiseLife(d.PredictedTTFT))
		// What the match found confirmed in HBM needs no promise.
		d.ticket = r.deps.Index.Begin(d.slot, keys[min(c.inHBM, len(keys)):], deadline)
		r.peering.promise(d, ticketBegins, deadline)
	}
	d.member.Sent(int(d.booking.UncachedTokens + d.booking.OutputTokens))
	if c.form.BlockTokens == 0 { // else its events tell all of it
		keys, _ = sentKeys(d.query)
		clock := d.member.Clock(c.cache)
		r.deps.Approx.Touch(d.slot, keys, clock)
		r.peering.sent(c, keys, clock)
	}
}

// settlePromise ends what a decision promised, unless the worker got to
// compute the prompt: then its events have a moment to confirm it.
func (r *Router) settlePromise(now clock.Instant, d *Decision, o Outcome) {
	if d.ticket == 0 || d.firstByte && o.Result != Failed {
		return
	}
	if o.Result == Completed {
		r.deps.Index.Extend(d.ticket, now.Add(confirmLag))
		r.peering.promise(d, ticketFirstToken, now.Add(confirmLag))
		return
	}
	r.deps.Index.End(d.ticket)
	r.peering.promise(d, ticketEnds, now)
}
