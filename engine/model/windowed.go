package model

import "math"

// Windowed is the iteration time of a model in which some layers attend to the
// last Window tokens only, as every second layer of gpt-oss does. Linear has
// the rest of the model with its layers of full attention; what the windowed
// ones read stops growing at Window tokens of context.
//
// Contexts are only known as a sum, so those of a batch count as equally long.
// That is exact for one sequence, and for any batch whose contexts are all
// below or all above the window. A chunk that crosses the window is charged at
// most Window²/2 pairs too many.
type Windowed struct {
	Linear
	WindowC float64 // µs per KV token that windowed layers read
	WindowQ float64 // µs per (query, key) pair in windowed layers
	Window  int     // tokens
}

// Iteration implements Timing.
func (t Windowed) Iteration(l Load) float64 {
	pairs := min(l.PrefillPairs, float64(l.PrefillTokens)*float64(t.Window))
	return t.Linear.Iteration(l) + t.WindowQ*pairs + t.reads(l, 1)
}

// Decodes implements Timing.
func (t Windowed) Decodes(l Load, k int) float64 {
	return t.Linear.Decodes(l, k) + t.reads(l, k)
}

// reads returns the time that windowed layers read KV in k iterations: the
// contexts grow by a token each until they fill the window.
func (t Windowed) reads(l Load, k int) float64 {
	if l.Decoding == 0 {
		return 0
	}
	mean, window := float64(l.KVTokens)/float64(l.Decoding), float64(t.Window)
	below := min(max(math.Ceil(window-mean), 0), float64(k))
	tokens := below*mean + below*(below-1)/2 + (float64(k)-below)*window
	return t.WindowC * float64(l.Decoding) * tokens
}
