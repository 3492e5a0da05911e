package workload

// A Share tells which part of a trace's prompts one shared cache that never
// forgets would have served: the bound no router can pass by placing requests
// well. Both forms count only each prompt's leading run of blocks seen before,
// in whole blocks of [BlockTokens], in order of arrival, with every earlier
// prompt's blocks already stored.
type Share struct {
	// Tokens is the share of prompt tokens. Load reports use this one, since
	// they compare it with cached tokens over prompt tokens.
	Tokens float64
	// Blocks is the share of blocks, a partial last one counting as a whole:
	// the figure trace papers publish.
	Blocks float64
}

// InfiniteCacheShare computes the [Share] of requests in order of arrival. It is
// zero for an empty trace.
func InfiniteCacheShare(reqs []Request) Share {
	seen := make(map[uint64]struct{})
	var hitBlocks, blocks, hitTokens, tokens int
	for i := range reqs {
		r := &reqs[i]
		run := 0
		for _, id := range r.HashIDs {
			if _, ok := seen[id]; !ok {
				break
			}
			run++
		}
		for _, id := range r.HashIDs[run:] {
			seen[id] = struct{}{}
		}
		hitBlocks += run
		blocks += len(r.HashIDs)
		hitTokens += min(run*BlockTokens, r.InputTokens)
		tokens += r.InputTokens
	}
	if tokens == 0 {
		return Share{}
	}
	return Share{
		Tokens: float64(hitTokens) / float64(tokens),
		Blocks: float64(hitBlocks) / float64(blocks),
	}
}
