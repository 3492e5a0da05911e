package workload

// InfiniteCache returns for each job of a plan how many of its prompt's tokens
// a cache that all workers share and that never forgets would hold at the
// moment of sending, in whole blocks of blockTokens (which must be positive):
// the bound no placement can pass. Jobs are taken in the plan's order, each
// leaving its whole prompt and answer behind. Where jobs overlap in time, that
// order is as good as any other: whoever comes first computes a shared prefix,
// and the sum stays the same.
//
// An engine computes at least one token of a prompt, so it may report a block
// less than this for a prompt that is cached to its end.
func InfiniteCache(plan *Plan, blockTokens int) []int {
	cached := make([]int, len(plan.Jobs))
	t := prefixTree{reach: make(map[edge]int), after: make(map[branch]uint32)}
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		cached[i] = t.match(j.Prompt) / blockTokens * blockTokens
		t.insert(j.Prompt, j.Answer)
	}
	return cached
}

// prefixTree knows which sequences of tokens lead any sequence inserted so far.
// A node stands between two spans of some sequence, node 0 before the first.
// Working on spans in place of blocks makes a prompt of 100k tokens a hundred
// look-ups.
type prefixTree struct {
	reach map[edge]int      // how much of a content has followed a node
	after map[branch]uint32 // the node after a span
}

type edge struct {
	id   uint64
	node uint32
}

type branch struct {
	edge
	tokens int
}

// match returns the length of the longest prefix that is known.
func (t *prefixTree) match(prompt []Span) int {
	var node uint32
	matched := 0
	for _, s := range prompt {
		if s.Tokens <= 0 {
			continue
		}
		e := edge{s.ID, node}
		reach := t.reach[e]
		matched += min(s.Tokens, reach)
		next, ok := t.after[branch{e, s.Tokens}]
		if !ok {
			break
		}
		node = next
	}
	return matched
}

func (t *prefixTree) insert(prompt []Span, answer Span) {
	var node uint32
	for _, s := range prompt {
		node = t.add(node, s)
	}
	t.add(node, answer)
}

func (t *prefixTree) add(node uint32, s Span) uint32 {
	if s.Tokens <= 0 {
		return node
	}
	e := edge{s.ID, node}
	if s.Tokens > t.reach[e] {
		t.reach[e] = s.Tokens
	}
	b := branch{e, s.Tokens}
	next, ok := t.after[b]
	if !ok {
		next = uint32(len(t.after) + 1)
		t.after[b] = next
	}
	return next
}
