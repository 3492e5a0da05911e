package route

// Brief is one decision in a line.
type Brief struct {
	ID                 string  `json:"id"`
	AtSeconds          float64 `json:"at_seconds"`  // since the router started
	AgoSeconds         float64 `json:"ago_seconds"` // how long ago that is
	Model              string  `json:"model"`
	Worker             string  `json:"worker"`
	Name               string  `json:"name,omitempty"` // that operators gave it
	PromptTokens       int     `json:"prompt_tokens"`
	CachedTokens       int     `json:"cached_tokens"` // predicted
	ActualCachedTokens int     `json:"actual_cached_tokens"`
	TTFTMillis         float64 `json:"ttft_ms"` // predicted
	ActualTTFTMillis   float64 `json:"actual_ttft_ms"`
	Result             string  `json:"result,omitempty"` // empty while it runs
	Cause              string  `json:"cause,omitempty"`  // of a difference in cached tokens
}

// Recent returns the last n decisions that can be explained, newest first.
func (r *Router) Recent(n int) []Brief {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	r.judgeDue(now)
	ring := r.ring
	n = min(max(0, n), len(ring.entries))
	out := make([]Brief, 0, n)
	for i := range n {
		e := &ring.entries[(ring.next-1-i+len(ring.entries))%len(ring.entries)]
		if e.Worker == "" {
			break // never used
		}
		b := Brief{
			ID: e.ID, AtSeconds: e.AtSeconds, AgoSeconds: now.Micros()/1e6 - e.AtSeconds, Model: e.Model, Worker: e.Worker, Name: e.Name,
			PromptTokens: e.PromptTokens, CachedTokens: e.CachedTokens, ActualCachedTokens: e.ActualCachedTokens,
			TTFTMillis: e.TTFTMillis, ActualTTFTMillis: e.ActualTTFTMillis, Result: e.Result,
		}
		if e.Audit != nil {
			b.Cause = e.Audit.Cause.String()
		}
		out = append(out, b)
	}
	return out
}
