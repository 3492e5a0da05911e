package fleet

import (
	"slices"
	"sort"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// Parts name the leading parts of a prompt, so that what several prompts share
// can be told. The zero value names none. Keys and Ends of a booking must never
// change: another that shares some of them goes by them after its end.
type Parts struct {
	Keys []kv.Key
	// KeyTokens is how many tokens each key stands for; where they differ, Ends
	// has the tokens up to the end of each.
	KeyTokens float64
	Ends      []float64
}

// tokens returns how many tokens the first n parts are.
func (p *Parts) tokens(n int) float64 {
	switch {
	case n == 0:
		return 0
	case p.Ends != nil:
		return p.Ends[n-1]
	}
	return float64(n) * p.KeyTokens
}

// covered returns how many leading tokens the entries of a prompt stand for.
func (p *Parts) covered() float64 {
	return p.tokens(p.entries() * occupiedStride)
}

// entries returns how many entries a prompt has in an occupied.
func (p *Parts) entries() int { return len(p.Keys) / occupiedStride }

// entry names the i-th of them.
func (p *Parts) entry(i int) kv.Key { return p.Keys[(i+1)*occupiedStride-1] }

// entryTokens is how many tokens the entries from one to another stand for.
func (p *Parts) entryTokens(from, to int) float64 {
	return p.tokens(to*occupiedStride) - p.tokens(from*occupiedStride)
}

// occupiedStride is how many parts one entry of an occupied stands for.
const occupiedStride = 8

// occupied is what the prompts in flight on a target hold of its KV pool
// together, a prefix that several share counted once. It goes by every
// occupiedStride-th part, so it is right to within that many a request.
//
// It is a tree of runs: prompts that begin alike share runs up to where they
// part. A key stands for all parts before it, so where two prompts part is found
// by halves, and a prompt costs a few steps however long it is.
type occupied struct {
	first  []branch // of all prompts
	tokens float64  // of all runs
	spare  *run     // runs to use again, by the first of their next
}

// branch is where prompts part: a run by its first entry.
type branch struct {
	key kv.Key
	*run
}

// run are entries that the same prompts in flight hold.
type run struct {
	parts    Parts // of the prompt that brought it
	from, to int   // its entries in that
	users    int32
	ready    clock.Instant // when the first of them should have computed it
	next     []branch
}

// tokens returns how many tokens a run stands for.
func (r *run) tokens() float64 { return r.parts.entryTokens(r.from, r.to) }

// shared returns how many of a run's entries a prompt has that has its first.
func (r *run) shared(p *Parts) int {
	most := min(r.to, p.entries())
	if p.entry(most-1) == r.parts.entry(most-1) {
		return most - r.from
	}
	return 1 + sort.Search(most-1-r.from-1, func(i int) bool { return p.entry(r.from+1+i) != r.parts.entry(r.from+1+i) })
}

// find returns which branch has the key, -1: none.
func find(branches []branch, key kv.Key) int {
	return slices.IndexFunc(branches, func(b branch) bool { return b.key == key })
}

// grow returns a run that has nothing behind it, in memory used before or not.
func (o *occupied) grow(r run) *run {
	fresh := o.spare
	if fresh == nil {
		fresh = new(run)
	} else {
		o.spare = nil
		if len(fresh.next) > 0 {
			o.spare = fresh.next[0].run
		}
	}
	r.next = fresh.next[:0]
	*fresh = r
	return fresh
}

// discard takes back a run that nobody uses.
func (o *occupied) discard(r *run) {
	*r = run{next: append(r.next[:0], branch{run: o.spare})}
	if o.spare == nil {
		r.next = r.next[:0]
	}
	o.spare = r
}

// add counts a prompt in, which should be computed by an instant.
func (o *occupied) add(p *Parts, ready clock.Instant) {
	branches := &o.first
	for at, n := 0, p.entries(); at < n; {
		i := find(*branches, p.entry(at))
		if i < 0 {
			r := o.grow(run{parts: *p, from: at, to: n, users: 1, ready: ready})
			o.tokens += r.tokens()
			*branches = append(*branches, branch{p.entry(at), r})
			return
		}
		r := (*branches)[i].run
		if to := r.from + r.shared(p); to < r.to {
			o.split(r, to)
		}
		r.users++
		at, branches = r.to, &r.next
	}
}

// split makes a run end at an entry, and what was behind it another run.
func (o *occupied) split(r *run, at int) {
	rest := o.grow(run{parts: r.parts, from: at, to: r.to, users: r.users, ready: r.ready})
	r.to, r.next, rest.next = at, rest.next, r.next
	r.next = append(r.next, branch{r.parts.entry(at), rest})
}

// remove counts a prompt out that was counted in.
func (o *occupied) remove(p *Parts) {
	branches := &o.first
	var above, gone *run
	for at, n := 0, p.entries(); at < n; {
		i := find(*branches, p.entry(at))
		r := (*branches)[i].run
		r.users--
		at = r.to
		if r.users > 0 {
			above, branches = r, &r.next
			continue
		}
		// Nobody else comes this way from here on.
		o.tokens -= r.tokens()
		if gone == nil {
			*branches = slices.Delete(*branches, i, i+1)
		} else {
			o.discard(gone)
		}
		gone, branches = r, &r.next
	}
	if gone != nil {
		o.discard(gone)
	}
	if above != nil {
		o.join(above)
	}
}

// join makes a run and the one behind it one, if they were once and nobody ends
// or parts between them.
func (o *occupied) join(r *run) {
	if len(r.next) != 1 {
		return
	}
	rest := r.next[0].run
	if rest.users != r.users || rest.ready != r.ready || &rest.parts.Keys[0] != &r.parts.Keys[0] || len(rest.parts.Keys) != len(r.parts.Keys) {
		return
	}
	r.to, r.next, rest.next = rest.to, rest.next, r.next[:0]
	o.discard(rest)
}

// leading returns how many leading tokens of a prompt are in use already.
func (o *occupied) leading(p *Parts) float64 {
	n, _ := o.reach(p)
	return p.tokens(n * occupiedStride)
}

// ready returns when the last of them should have been computed; 0 where none is
// in use.
func (o *occupied) ready(p *Parts) clock.Instant {
	_, ready := o.reach(p)
	return ready
}

// reach returns how many leading entries of a prompt are in use, and when the last
// of them should have been computed.
func (o *occupied) reach(p *Parts) (entries int, ready clock.Instant) {
	branches := o.first
	for n := p.entries(); entries < n; {
		i := find(branches, p.entry(entries))
		if i < 0 {
			break
		}
		r := branches[i].run
		entries, ready, branches = r.from+r.shared(p), r.ready, r.next
		if entries < r.to {
			break
		}
	}
	return entries, ready
}
