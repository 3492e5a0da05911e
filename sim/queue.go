package sim

import "container/heap"

// event is something that happens at a moment of virtual time.
type event struct {
	at  float64 // µs
	seq uint64  // of two at one moment, the one scheduled first happens first
	do  func(now float64)
}

// agenda holds what is to happen, earliest first.
type agenda struct {
	events []event
	next   uint64
}

func (a *agenda) Len() int { return len(a.events) }
func (a *agenda) Less(i, j int) bool {
	x, y := &a.events[i], &a.events[j]
	if x.at != y.at {
		return x.at < y.at
	}
	return x.seq < y.seq
}
func (a *agenda) Swap(i, j int) { a.events[i], a.events[j] = a.events[j], a.events[i] }
func (a *agenda) Push(x any)    { a.events = append(a.events, x.(event)) }
func (a *agenda) Pop() any {
	last := len(a.events) - 1
	e := a.events[last]
	a.events[last] = event{}
	a.events = a.events[:last]
	return e
}

// put schedules do for a moment.
func (a *agenda) put(at float64, do func(now float64)) {
	heap.Push(a, event{at: at, seq: a.next, do: do})
	a.next++
}

// take removes what happens first; ok is false when nothing is left.
func (a *agenda) take() (e event, ok bool) {
	if len(a.events) == 0 {
		return event{}, false
	}
	return heap.Pop(a).(event), true
}
