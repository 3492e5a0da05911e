package route

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// What explains the last decisions is whole, however many they are and however
// many workers each weighed.
func TestTheLastExplanationsAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 3*slabEntries).Draw(t, "size")
		r, puts := newRing(size), 0
		var lengths []int
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			most := rapid.IntRange(0, mostWeighed).Draw(t, "candidates")
			for range rapid.IntRange(1, slabEntries).Draw(t, "decisions") {
				all, n := r.spare(), min(most, 1+puts%mostWeighed)
				for range n {
					all = append(all, weighed{queued: puts})
				}
				r.put(Explanation{ID: fmt.Sprint(puts)}, all)
				lengths, puts = append(lengths, n), puts+1
			}
			for i := max(0, puts-size); i < puts; i++ {
				x := r.entries[r.at[fmt.Sprint(i)]]
				if x.ID != fmt.Sprint(i) || len(x.weighed) != lengths[i] {
					t.Fatalf("decision %d of %d is remembered as %q with %d candidates, it had %d", i, puts, x.ID, len(x.weighed), lengths[i])
				}
				for _, w := range x.weighed {
					if w.queued != i {
						t.Fatalf("decision %d of %d has a candidate of decision %d", i, puts, w.queued)
					}
				}
			}
		}
	})
}
