package workload

// Parents tells for each request, ordered by arrival, which earlier one it
// continues as the next turn of the same conversation: the index of that
// request, or -1.
//
// Where the trace names sessions, a turn continues the session's turn before
// it. Elsewhere the hash ids tell: request q continues p when p's whole blocks
// lead q's prompt and p was the first to bring the last of them, or itself
// continues the one that was; of several such p, the one with the longest
// prompt, and then the latest. A prompt that is nothing but what many
// conversations share (a system prompt) chains nobody: its last whole block is
// followed by more than [maxFollowers] different blocks in the trace. A guess,
// like every such rule: a retry of a prompt counts as its next turn.
func Parents(reqs []Request) []int {
	parents := make([]int, len(reqs))
	follow := followers(reqs)
	session := make(map[string]int)
	seen := make(map[uint64]bool) // ids any earlier prompt has had as a whole block
	tail := make(map[uint64]int)  // the last whole block of a turn → the latest turn that ends there
	for i := range reqs {
		r := &reqs[i]
		whole := r.HashIDs[:min(r.FullBlocks(), len(r.HashIDs))]
		parents[i] = -1
		if r.Session != "" {
			if p, ok := session[r.Session]; ok {
				parents[i] = p
			}
			session[r.Session] = i
			continue
		}
		deepest := -1
		for k := len(whole) - 1; k >= 0; k-- {
			if p, ok := tail[whole[k]]; ok {
				parents[i], deepest = p, k
				break
			}
		}
		if n := len(whole); n > 0 && follow[whole[n-1]] <= maxFollowers && (!seen[whole[n-1]] || deepest == n-1) {
			tail[whole[n-1]] = i
		}
		for _, id := range whole {
			seen[id] = true
		}
	}
	return parents
}

// maxFollowers is how many different blocks may follow a conversation's latest
// one: a few more than one for retries, and for turns shorter than a block.
const maxFollowers = 16

// followers counts for each block how many different ones come next after it.
func followers(reqs []Request) map[uint64]int {
	n := make(map[uint64]int)
	seen := make(map[uint64]bool)
	for i := range reqs {
		ids := reqs[i].HashIDs
		for k := 1; k < len(ids); k++ {
			if !seen[ids[k]] { // one id, one prefix: it has one block before it
				seen[ids[k]] = true
				n[ids[k-1]]++
			}
		}
	}
	return n
}
