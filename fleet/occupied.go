package fleet

import (
	"sort"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// Parts name the leading parts of a prompt, so that what several prompts share
// can be told. The zero value names none.
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
	return p.tokens(len(p.Keys) / occupiedStride * occupiedStride)
}

// occupiedStride is how many parts one entry of an occupied stands for.
const occupiedStride = 8

// occupied is what the prompts in flight on a target hold of its KV pool
// together, a prefix that several share counted once. It remembers every
// occupiedStride-th part, so it is right to within that many a request.
type occupied struct {
	entries map[kv.Key]occupiedEntry
	tokens  float64 // of all entries
}

// occupiedEntry is a run of occupiedStride parts that end with a key.
type occupiedEntry struct {
	users  int32
	tokens float64
	ready  clock.Instant // when the first of them should have computed it
}

// add counts a prompt in, which should be computed by an instant.
func (o *occupied) add(p *Parts, ready clock.Instant) {
	if o.entries == nil {
		o.entries = make(map[kv.Key]occupiedEntry)
	}
	for end := occupiedStride; end <= len(p.Keys); end += occupiedStride {
		key := p.Keys[end-1]
		e := o.entries[key]
		if e.users == 0 {
			e.tokens, e.ready = p.tokens(end)-p.tokens(end-occupiedStride), ready
			o.tokens += e.tokens
		}
		e.users++
		o.entries[key] = e
	}
}

// remove counts a prompt out that was counted in.
func (o *occupied) remove(p *Parts) {
	for end := occupiedStride; end <= len(p.Keys); end += occupiedStride {
		key := p.Keys[end-1]
		e := o.entries[key]
		if e.users--; e.users > 0 {
			o.entries[key] = e
			continue
		}
		o.tokens -= e.tokens
		delete(o.entries, key)
	}
}

// leading returns how many leading tokens of a prompt are in use already.
func (o *occupied) leading(p *Parts) float64 { return p.tokens(occupiedStride * o.entriesOf(p)) }

// ready returns when the last of them should have been computed; 0 where none is
// in use.
func (o *occupied) ready(p *Parts) clock.Instant {
	n := o.entriesOf(p)
	if n == 0 {
		return 0
	}
	return o.entries[p.Keys[n*occupiedStride-1]].ready
}

// entriesOf returns how many leading entries a prompt has here.
func (o *occupied) entriesOf(p *Parts) int {
	return sort.Search(len(p.Keys)/occupiedStride, func(i int) bool {
		return o.entries[p.Keys[(i+1)*occupiedStride-1]].users == 0
	})
}
