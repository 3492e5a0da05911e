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

// match finds what every member holds of the prompt. Token ids match against
// the index where the worker's events feed it, and so does as much of a text as
// its tokens are known; everything else against what was sent there.
func (r *Router) match(members []*fleet.Member, p *prompt.Request) []matched {
	now, mark := r.deps.Clock.Now(), r.deps.Index.Mark()
	out := make([]matched, len(members))
	bySlot := make(map[index.Slot]int, len(members))
	for i, m := range members {
		out[i].cache, out[i].mark = m.CacheAt(), mark
		if !m.Outdated() {
			bySlot[out[i].cache.Slot] = i
		}
	}
	bySent := false
	for i, m := range members {
		c := out[i].cache
		form := prompt.Form{BlockTokens: c.BlockTokens, SaltInRoot: c.SaltInRoot && p.Salt != ""}
		switch {
		case c.BlockTokens <= 0 || c.Known != fleet.ByEvents:
		case len(p.Tokens) > 0:
			out[i].form = form
		case r.deps.Learned != nil:
			out[i].class = prompt.Class(m.RenderClass(p.Model, c.Slot, now))
			out[i].known = r.deps.Learned.Find(p, out[i].class, form)
		}
		bySent = bySent || out[i].form.BlockTokens == 0
	}
	found := func(h *index.Hit, i int, source string) {
		out[i].run, out[i].source, out[i].sure, out[i].inHBM = h.Promised, source, h.Run.Len(), h.Run.HBM
		if members[i].Stalled(now) {
			out[i].run.HBM, out[i].run.Lower = h.Promised.HBM/2, h.Promised.Lower/2
		}
	}
	var hits []index.Hit
	for _, form := range forms(out) {
		hits = r.deps.Index.Match(p.TokenKeys(form), hits[:0])
		for j := range hits {
			if i, ok := bySlot[hits[j].Slot]; ok && out[i].form == form {
				found(&hits[j], i, fromEvents)
			}
		}
	}
	for _, k := range knowns(out) {
		hits = r.deps.Index.Match(k.Keys, hits[:0])
		for j := range hits {
			if i, ok := bySlot[hits[j].Slot]; ok && same(out[i].known, k) {
				found(&hits[j], i, fromLearned)
			}
		}
	}
	if !bySent {
		return out
	}
	keys, chunks := sentKeys(p)
	hits = r.deps.Approx.Match(keys, func(s index.Slot) index.Horizon {
		if i, ok := bySlot[s]; ok {
			return members[i].Horizon(out[i].cache)
		}
		return index.Horizon{}
	}, hits[:0])
	for _, h := range hits {
		i, ok := bySlot[h.Slot]
		switch {
		case !ok || out[i].form.BlockTokens > 0:
		case len(out[i].known.Keys) > 0:
			out[i].sent = h.Run
		default:
			out[i].run, out[i].source, out[i].chunks = h.Run, fromSent, chunks
		}
	}
	return out
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
		clock := d.member.Clock(&c.cache)
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
