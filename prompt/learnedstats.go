package prompt

// LearnedStats says how much is learned and how it went.
type LearnedStats struct {
	Entries  int
	Trusted  int
	Unusable int
	Bytes    int64 // an estimate of the memory

	Hits    uint64 // look-ups that found a boundary
	Misses  uint64 // look-ups that found none
	Learned uint64
	Trusts  uint64 // entries that came to count
	Evicted uint64 // for want of room
	Bumped  uint64 // times that a class was forgotten
	// Refused counts the boundaries that can't be used, by reason.
	Refused [numRefusals]uint64
}

// Refusal is why a boundary can't be used.
type Refusal uint8

// The reasons.
const (
	NotPrefix    Refusal = iota // the messages before it have other tokens than in the whole prompt
	Unrenderable                // the engine does not render the messages before it alone
	Contradicted                // another prompt has other tokens before it
	Faulty                      // workers computed what should have been there
	numRefusals
)

// String returns the reason's name as used in metrics.
func (r Refusal) String() string {
	return [...]string{"not_prefix", "unrenderable", "contradicted", "faulty"}[r]
}

// Refusals are all of them.
var Refusals = [...]Refusal{NotPrefix, Unrenderable, Contradicted, Faulty}

// Stats returns the present counts.
func (l *Learned) Stats() LearnedStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Entries = len(l.entries)
	return s
}
