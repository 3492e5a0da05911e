package fleet

// stepSizes learns from an engine's batches of KV events how many prompt
// tokens one of its steps computes at most (the chunk budget, less what
// decodes take of it). A batch tells of one step's finished blocks, or of
// blocks that were loaded from a lower tier, of any number. So the most that
// one batch ever told proves nothing: what counts is the size at which much of
// the work is done, since long prompts go in steps of the full budget.
type stepSizes struct {
	tokens [stepBuckets]float64 // tokens told in batches of that size
	total  float64
}

const (
	stepBucketTokens = 64
	stepBuckets      = 512 // up to 32k tokens a step
	// leastStepTokens is how many tokens must have been told before the sizes
	// mean anything, stepMemoryTokens over how many they are averaged.
	leastStepTokens  = 50_000
	stepMemoryTokens = 2_000_000
	// fullShare is the share of all work that steps of full size make at least,
	// fullWidth how much smaller than the largest of them they may be.
	fullShare, fullWidth = 0.2, 0.85
)

// observe takes one batch that told of so many tokens.
func (s *stepSizes) observe(tokens int) {
	if tokens <= 0 {
		return
	}
	s.tokens[min(tokens/stepBucketTokens, stepBuckets-1)] += float64(tokens)
	if s.total += float64(tokens); s.total < stepMemoryTokens {
		return
	}
	s.total /= 2
	for i := range s.tokens {
		s.tokens[i] /= 2
	}
}

// full returns the size of a full step in tokens; 0 when it can't be told.
func (s *stepSizes) full() int {
	if s.total < leastStepTokens {
		return 0
	}
	sum, low := 0.0, stepBuckets
	for top := stepBuckets - 1; top > 0; top-- {
		for low > int(fullWidth*float64(top)) {
			low--
			sum += s.tokens[low]
		}
		if sum >= fullShare*s.total {
			for s.tokens[top] < fullShare/10*s.total {
				top--
			}
			return (top + 1) * stepBucketTokens
		}
		sum -= s.tokens[top]
	}
	return 0
}
