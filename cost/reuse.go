package cost

// Reuse learns how likely what lies in a cache is to be used again, by its age:
// from contexts that sessions left behind, and the ages at which they came back
// to them. Ages are in tokens that the worker has stored since, the clock by
// which LRU caches evict. The zero value has seen nothing.
//
// It counts returns whether or not the context was still there, so it says what
// a cache of any size would be worth.
type Reuse struct {
	left float64
	ages histogram // in units of reuseUnit
}

const (
	reuseUnit   = 1024.0 // tokens
	reuseMemory = 2000.0 // contexts, at which half is forgotten
	// reusePrior is how many contexts that nobody came back to are assumed
	// before any were seen.
	reusePrior = 10.0
)

// Left records that a context was left behind.
func (u *Reuse) Left() {
	if u.left >= reuseMemory {
		u.left /= 2
		u.ages.weight = 0
		for i := range u.ages.bins {
			u.ages.bins[i] /= 2
			u.ages.weight += float64(u.ages.bins[i])
		}
	}
	u.left++
}

// Again records that one was come back to at an age.
func (u *Reuse) Again(tokens float64) { u.ages.add(tokens/reuseUnit, 2*reuseMemory) }

// Probability returns the share of contexts of that age that are still come
// back to: of those not used before it, those used after.
func (u *Reuse) Probability(tokens float64) float64 {
	before, at := 0.0, binOf(tokens/reuseUnit)
	for _, n := range u.ages.bins[:at] {
		before += float64(n)
	}
	after := u.ages.weight - before
	return max(0, min(1, after/max(1, u.left-before+reusePrior)))
}

// Confirm learns P(confirm): the share of promised tokens that a request met as
// promised. The zero value expects nearly all.
type Confirm struct{ promises, kept float64 }

const (
	confirmPrior  = 20.0  // promises that are taken to have been kept
	confirmMemory = 500.0 // promises
)

// Observe records which share of what was promised came true, 0 to 1.
func (c *Confirm) Observe(share float64) {
	if c.promises >= confirmMemory {
		keep := (confirmMemory - 1) / c.promises
		c.promises, c.kept = c.promises*keep, c.kept*keep
	}
	c.promises++
	c.kept += max(0, min(1, share))
}

// Probability returns P(confirm), above 0 and at most 1.
func (c *Confirm) Probability() float64 { return (confirmPrior + c.kept) / (confirmPrior + c.promises) }
