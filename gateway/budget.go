package gateway

import "sync"

// retryBudget is a token bucket that lets retries be a share of the traffic:
// every request adds the share, every retry takes one. It starts full, so that
// a quiet router can retry too.
type retryBudget struct {
	share float64

	mu     sync.Mutex
	tokens float64
}

// retryBurst is how many retries the budget saves up at most.
const retryBurst = 10

func newRetryBudget(share float64) *retryBudget {
	return &retryBudget{share: share, tokens: retryBurst}
}

// add counts one request.
func (b *retryBudget) add() {
	b.mu.Lock()
	b.tokens = min(b.tokens+b.share, retryBurst)
	b.mu.Unlock()
}

// take reports whether one more retry is allowed, and counts it.
func (b *retryBudget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
