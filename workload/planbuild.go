package workload

import (
	"cmp"
	"slices"
	"time"
)

// The kinds of content that generators make. They keep the ids of different
// things apart.
const (
	systemContent = iota + 1
	userContent
	answerContent
	toolContent
	taskContent
	visibleContent
	traceAnswer
	burstContent
)

// contentID names one content: of a kind, of one session, the k-th there.
// Equal arguments give equal ids, and ids of different arguments differ but for
// chance (64 bits).
func contentID(seed uint64, kind, session, k int) uint64 {
	s := seed
	s = next(&s) ^ uint64(kind)
	s = next(&s) ^ uint64(session)
	s = next(&s) ^ uint64(k)
	return next(&s)
}

// waitList hands out small slices of one big array, so that a million jobs that
// wait for one other each don't cost a million allocations.
type waitList struct{ free []int }

func (w *waitList) of(jobs ...int) []int {
	if len(jobs) > cap(w.free)-len(w.free) {
		w.free = make([]int, 0, max(4096, len(jobs)))
	}
	at := len(w.free)
	w.free = append(w.free, jobs...)
	return w.free[at:len(w.free):len(w.free)]
}

// byTime orders jobs by At, those of equal At as they stand. Waits follow their
// jobs; they are written anew, since other plans may share them. It is for
// plans in which no job's At is before that of one it waits for.
func byTime(jobs []Job) {
	order := make([]int, len(jobs)) // new index → old
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(jobs[a].At, jobs[b].At) })
	moved := make([]int, len(jobs)) // old index → new
	sorted := make([]Job, len(jobs))
	for to, from := range order {
		moved[from] = to
		sorted[to] = jobs[from]
	}
	var waits waitList
	var buf []int
	for i := range sorted {
		if len(sorted[i].Waits) == 0 {
			continue
		}
		buf = buf[:0]
		for _, w := range sorted[i].Waits {
			buf = append(buf, moved[w])
		}
		sorted[i].Waits = waits.of(buf...)
	}
	copy(jobs, sorted)
}

// seconds converts a float of seconds.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
