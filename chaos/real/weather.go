package real

import (
	"math/rand/v2"
	"time"
)

// weather is what the switch does to packets. The zero value does nothing.
type weather struct {
	loss      float64       // share that is lost
	delay     time.Duration // added to each, ± half of it
	duplicate float64       // share that comes twice
	reorder   float64       // share that comes late, by lateness
	lateness  time.Duration
	mtu       int // longer packets are lost; 0 for none
}

// fates says after which delays a packet of so many bytes is delivered: none, if
// it is lost, two if it comes twice.
func (w *weather) fates(bytes int, rng *rand.Rand) []time.Duration {
	if w.mtu > 0 && bytes > w.mtu || chance(w.loss, rng) {
		return nil
	}
	one := func() (d time.Duration) {
		if w.delay > 0 {
			d = w.delay/2 + time.Duration(rng.Int64N(int64(w.delay)))
		}
		if chance(w.reorder, rng) {
			d += w.lateness
		}
		return d
	}
	fates := []time.Duration{one()}
	if chance(w.duplicate, rng) {
		fates = append(fates, one())
	}
	return fates
}

func chance(share float64, rng *rand.Rand) bool { return share > 0 && rng.Float64() < share }
