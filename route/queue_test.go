package route

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/prompt"
	"pgregory.net/rapid"
)

func waiting(model string, priority int, merit float64, since clock.Instant) *Waiting {
	return &Waiting{query: Query{Prompt: &prompt.Request{Model: model}, Hints: Hints{Priority: priority}}, merit: merit, since: since}
}

// check sees that the queue's lists and counts agree with a plain list of what
// should be in it, oldest first.
func (q *queue) check(t *rapid.T, want []*Waiting) {
	i, perLine := 0, make(map[*line]int)
	for w := q.oldest; w != nil; w = w.inOrder.after {
		if i >= len(want) || w != want[i] {
			t.Fatalf("number %d in order of arrival is another", i)
		}
		perLine[w.line]++
		i++
	}
	if i != len(want) || q.size != i || len(perLine) != len(q.lines) {
		t.Fatalf("%d in order, %d counted, %d wanted; %d lines of %d", i, q.size, len(want), len(perLine), len(q.lines))
	}
	for _, l := range q.lines {
		if l.size != perLine[l] || q.line(l.model) != l {
			t.Fatalf("line %q says %d, has %d", l.model, l.size, perLine[l])
		}
		for _, level := range l.levels {
			n := 0
			for i := range level.lanes {
				for w := level.lanes[i].first; w != nil; w = w.inLane.after {
					n++
				}
			}
			if n != level.size || n == 0 {
				t.Fatalf("priority %d says %d, has %d", level.priority, level.size, n)
			}
		}
	}
}

// Whatever is added, removed and taken: nobody of a higher priority waits when
// one is taken, and none of the same whose standing is more than a lane's width
// above.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var all []*Waiting
		var now clock.Instant
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1, 2:
				w := waiting(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "model"), rapid.IntRange(-1, 1).Draw(t, "priority"),
					math.Exp2(rapid.Float64Range(-15, 15).Draw(t, "octave")), now)
				q.add(w)
				all = append(all, w)
			case 3:
				if len(all) > 0 {
					i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					if !q.remove(all[i]) || q.remove(all[i]) {
						t.Fatal("one is removed just once")
					}
					all = slices.Delete(all, i, i+1)
				}
			default:
				best := q.next(now)
				if (best == nil) != (len(all) == 0) {
					t.Fatalf("%d wait, next is %v", len(all), best)
				}
				if best == nil {
					continue
				}
				for _, w := range all {
					p, mine := w.query.Hints.Priority, best.query.Hints.Priority
					inside := math.Abs(math.Log2(w.merit)) < 12 && math.Abs(math.Log2(best.merit)) < 12
					if p > mine || p == mine && inside && w.standing(now) > best.standing(now)*math.Exp2(1.0/lanesPerOctave)*1.0001 {
						t.Fatalf("taken %+v before %+v", best, w)
					}
				}
				q.remove(best)
				all = slices.DeleteFunc(all, func(w *Waiting) bool { return w == best })
			}
			q.check(t, all)
		}
	})
}

// A line that is passed over is not asked again, and the others are.
func TestQueuePassesLines(t *testing.T) {
	var q queue
	a, b := waiting("a", 0, 2, 0), waiting("b", 0, 1, 0)
	q.add(a)
	q.add(b)
	if q.next(0) != a {
		t.Fatal("the better one is not next")
	}
	a.line.passed = true
	if q.next(0) != b {
		t.Fatal("the other line is not next")
	}
	b.line.passed = true
	if w := q.next(0); w != nil {
		t.Fatalf("%+v is next", w)
	}
}

// Long work is overtaken by short work, but not for ever: one request is taken
// every second, a short one comes every second, and after as long as the long
// one's work is longer than theirs it has its turn.
func TestQueueStarvesNobody(t *testing.T) {
	for _, ratio := range []float64{2, 10, 50} {
		var q queue
		long := waiting("m", 0, 1/ratio, 0)
		q.add(long)
		taken := 0
		for now := clock.Instant(0); ; now = now.Add(time.Second) {
			q.add(waiting("m", 0, 1, now))
			w := q.next(now)
			q.remove(w)
			if w == long {
				break
			}
			if taken++; float64(taken) > 1.3*ratio*ageing.Seconds() {
				t.Fatalf("work %v times as long was overtaken %d times", ratio, taken)
			}
		}
		if taken < int(ratio/1.3) {
			t.Errorf("work %v times as long was overtaken only %d times", ratio, taken)
		}
	}
}

// What a turn takes does not grow with how many wait.
func BenchmarkQueue(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var q queue
			rng := clock.Rand(1, "queue")
			now := clock.Instant(0)
			for range n {
				q.add(waiting("m", 0, math.Exp2(10*rng.Float64()-5), now))
			}
			for b.Loop() {
				now = now.Add(time.Millisecond)
				w := q.next(now)
				q.remove(w)
				w.since = now
				q.add(w)
			}
		})
	}
}
