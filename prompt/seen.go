package prompt

// seen counts how often boundaries were met, roughly: what was never met again
// is not worth a question to an engine. It is a table of fixed size; where a
// new key finds no room the one met least often gives way, and its neighbours
// age a little, so that old fame fades.
type seen struct {
	sets [][seenWays]uint64 // key without its low byte | count
}

const (
	seenWays    = 4
	seenMost    = 255
	seenBuckets = 1 << 18 // 8 MiB
)

func newSeen(sets int) *seen { return &seen{sets: make([][seenWays]uint64, sets)} }

// count returns how often a key has been met, this time included if met.
func (s *seen) count(key uint64, met bool) int {
	set := &s.sets[key>>8%uint64(len(s.sets))]
	tag := key &^ seenMost
	least := 0
	for i, e := range set {
		n := e & seenMost
		if n > 0 && e&^seenMost == tag {
			if met && n < seenMost {
				set[i]++
				n++
			}
			return int(n)
		}
		if n < set[least]&seenMost {
			least = i
		}
	}
	if !met {
		return 0
	}
	for i := range set {
		if set[i]&seenMost > 1 {
			set[i]--
		}
	}
	set[least] = tag | 1
	return 1
}
