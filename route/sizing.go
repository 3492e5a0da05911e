package route

import (
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/prompt"
)

// sizing is how large a prompt and its leading parts are, in tokens: exact for
// token ids, learned or guessed for text.
type sizing struct {
	total float64
	high  float64   // what it has at most in 9 of 10 cases
	ends  []float64 // up to the end of each chunk of a text
	// An earlier prompt ended with chunk anchor, and its answer had so many
	// tokens that are still in the cache, if this prompt gives it back; -1: none.
	anchor       int
	answerTokens float64
	earlier      prompt.Size    // of that prompt
	output       cost.OutputKey // what the answer's length may depend on: see requestOf
	// Where the session was last, if it is known.
	session session
	known   bool
}

// sentTo returns the tokens of the first n chunks.
func (z *sizing) sentTo(n int) float64 {
	if n == 0 {
		return 0
	}
	return z.ends[n-1]
}

// sent returns the tokens that are cached where the first n chunks were sent
// last: those of an answer that was given to them too.
func (z *sizing) sent(n int) float64 {
	if n-1 == z.anchor {
		return z.sentTo(n) + z.answerTokens
	}
	return z.sentTo(n)
}

// size finds out how large a prompt is, of a text given most of what is known of
// it, and where its session was. It needs r.mu, and its result lasts until the next
// call.
func (r *Router) size(q *Query, deepest prompt.Known) sizing {
	p := q.Prompt
	z := sizing{anchor: -1}
	r.ends, z.earlier = r.sizes.Ends(p, deepest, r.ends[:0])
	z.ends = r.ends
	if z.anchor = z.earlier.Chunks - 1; z.anchor >= 0 && z.earlier.Answered {
		z.answerTokens = float64(r.sizes.KeptTokens(p.Model, z.earlier))
	}
	z.total = float64(r.sizes.PromptTokens(p, z.ends, z.earlier))
	z.high = z.total
	if p.TextBytes > 0 && !deepest.Told {
		z.high = r.sizes.HighTokens(p.Model, z.total)
	}
	z.session, z.known = r.sessions.get(q.session())
	return z
}
