package model

// Mocker is the iteration time of Dynamo's mocked engine, by its polynomials
// (ai-dynamo/dynamo, mocker perf model "Polynomial"): computing n prompt tokens
// takes 4.21e-7·n² + 0.01518·n + 16.5 ms, decoding takes −25.74·u² + 54.01·u +
// 5.74 ms, at least 1, where u is the share of the KV pool that the decoding
// sequences' contexts fill. It is another form than Linear: decoding doesn't
// depend on the batch but through u, and prefill is not linear in n.
//
// Assumed here: an iteration that does both takes the sum, n is the prompt
// tokens of the iteration, and u stops at 1 where prefixes are shared.
type Mocker struct {
	PoolTokens int // tokens that are u = 1; more than 0
}

const mockerFloorMicros = 1000

// Iteration implements Timing.
func (t Mocker) Iteration(l Load) float64 {
	var micros float64
	if n := float64(l.PrefillTokens); n > 0 {
		micros = 4.21e-4*n*n + 15.18*n + 16500
	}
	if l.Decoding > 0 {
		micros += t.Decodes(l, 1)
	}
	return micros
}

// Decodes implements Timing. Up to u = 1 the time is a polynomial of the step
// i = 0…k−1 above its floor, from there on it is constant; both parts have a
// closed sum.
func (t Mocker) Decodes(l Load, k int) float64 {
	const square, linear, constant = -25740, 54010, 5740
	u, grows := t.usage(l.KVTokens), t.usage(int64(l.Decoding))
	below := 0 // steps that start below u = 1
	if u < 1 {
		below = k
		if left := (1 - u) / grows; left < float64(k) {
			below = int(left) + 1
		}
		below = min(below, k)
	}
	n := float64(below)
	first, second := n*(n-1)/2, n*(n-1)*(2*n-1)/6 // Σ i, Σ i²
	sum := n*(square*u*u+linear*u+constant) + first*(2*square*u+linear)*grows + second*square*grows*grows
	return sum + float64(k-below)*max(mockerFloorMicros, square+linear+constant)
}

func (t Mocker) usage(tokens int64) float64 { return float64(tokens) / float64(t.PoolTokens) }
