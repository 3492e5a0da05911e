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
	fromEvents = "events" // the worker's KV events, and what was promised since
	fromSent   = "sent"   // this router's own routings, aged
)

// matched is what one member holds of a prompt, before its size is known.
type matched struct {
	cache  fleet.Cache
	run    index.Run
	sure   int        // entries of run that events have confirmed
	mark   index.Mark // from before the match
	source string
	// What run counts: blocks of that form, or chunks.
	form   prompt.Form
	chunks []prompt.Chunk
}

// match finds what every member holds of the prompt. Token ids match against
// the index where the worker's events feed it, everything else against what
// was sent there.
func (r *Router) match(members []*fleet.Member, p *prompt.Request) []matched {
	now, mark := r.deps.Clock.Now(), r.deps.Index.Mark()
	out := make([]matched, len(members))
	bySlot := make(map[index.Slot]int, len(members))
	for i, m := range members {
		out[i].cache, out[i].mark = m.Cache(), mark
		if !m.Outdated() {
			bySlot[out[i].cache.Slot] = i
		}
	}
	for i := range members {
		if exact(&out[i].cache, p) {
			out[i].form = prompt.Form{BlockTokens: out[i].cache.BlockTokens, SaltInRoot: out[i].cache.SaltInRoot && p.Salt != ""}
		}
	}
	var hits []index.Hit
	for _, form := range forms(out) {
		hits = r.deps.Index.Match(p.TokenKeys(form), hits[:0])
		for _, h := range hits {
			if i, ok := bySlot[h.Slot]; ok && out[i].form == form {
				out[i].run, out[i].source, out[i].sure = h.Promised, fromEvents, h.Run.Len()
				if members[i].Stalled(now) {
					out[i].run.HBM, out[i].run.Lower = h.Promised.HBM/2, h.Promised.Lower/2
				}
			}
		}
	}
	keys, chunks := sentKeys(p)
	hits = r.deps.Approx.Match(keys, func(s index.Slot) index.Horizon {
		if i, ok := bySlot[s]; ok {
			return members[i].Horizon(&out[i].cache)
		}
		return index.Horizon{}
	}, hits[:0])
	for _, h := range hits {
		if i, ok := bySlot[h.Slot]; ok && out[i].source == "" && out[i].form.BlockTokens == 0 {
			out[i].run, out[i].source, out[i].chunks = h.Run, fromSent, chunks
		}
	}
	return out
}

// exact reports whether the index speaks for a member and a prompt.
func exact(c *fleet.Cache, p *prompt.Request) bool {
	return len(p.Tokens) > 0 && c.BlockTokens > 0 && c.Known == fleet.ByEvents
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

// tokens turns a match into tokens of a prompt of that many: at most all whole
// blocks but the one that holds the last token, which is always computed.
func (m *matched) tokens(promptTokens, tokensPerByte float64) cost.Hit {
	block := m.cache.BlockTokens
	var hbm, all float64
	switch {
	case m.run.Len() == 0:
		return cost.Hit{}
	case m.chunks != nil:
		at := func(n int) float64 {
			if n == 0 {
				return 0
			}
			return float64(m.chunks[n-1].TextBytes) * tokensPerByte
		}
		hbm, all = at(m.run.HBM), at(m.run.Len())
	case m.form.BlockTokens == 0:
		hbm, all = float64(m.run.HBM*sentBlockTokens), float64(m.run.Len()*sentBlockTokens)
	default:
		hbm, all = float64(m.run.HBM*block), float64(m.run.Len()*block)
	}
	if block == 0 {
		block = defaultBlockTokens
	}
	most := float64((int(promptTokens) - 1) / block * block)
	whole := func(x float64) float64 { return min(most, float64(int(x)/block*block)) }
	hbm, all = whole(hbm), whole(all)
	return cost.Hit{HBMTokens: hbm, LowerTokens: all - hbm, Tier: m.run.Tier}
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
	if c.form.BlockTokens > 0 {
		d.ticket = r.deps.Index.Begin(d.slot, d.query.TokenKeys(c.form), now.Add(c.group.promiseLife(d.PredictedTTFT)))
	}
	keys, _ := sentKeys(d.query)
	d.member.Sent(int(d.booking.UncachedTokens + d.booking.OutputTokens))
	r.deps.Approx.Touch(d.slot, keys, d.member.Clock(&c.cache))
}

// settlePromise ends what a decision promised, unless the worker got to
// compute the prompt: then its events have a moment to confirm it.
func (r *Router) settlePromise(now clock.Instant, d *Decision, o Outcome) {
	if d.ticket == 0 || d.firstByte && o.Result != Failed {
		return
	}
	if o.Result == Completed {
		r.deps.Index.Extend(d.ticket, now.Add(confirmLag))
		return
	}
	r.deps.Index.End(d.ticket)
}
