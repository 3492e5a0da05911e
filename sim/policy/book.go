package policy

import "github.com/rhizome-router/rhizome/kv"

// book is what one replica knows to be in flight: its own requests and, of
// rules that share them, those that others told of.
type book struct {
	byID  map[uint64]booking
	loads []load // by worker
	// active counts, for rules that ask for it, how many requests in flight
	// hold a block on a worker.
	active *activeBlocks
}

type booking struct {
	worker        int
	prefillTokens int // to be computed, until the first token; then 0
	waiting       bool
	keys          []kv.Key
}

// load is the sum of a worker's bookings.
type load struct {
	requests      int
	waiting       int // of them, without a first token
	prefillTokens int // of those waiting
	blocks        int // different blocks that requests in flight hold
}

func newBook(workers int) book {
	return book{byID: map[uint64]booking{}, loads: make([]load, workers)}
}

// add books a request. An id that is booked already is released first: the
// request was sent again. keys may be nil where blocks aren't tracked.
func (b *book) add(id uint64, worker, prefillTokens int, keys []kv.Key) {
	b.done(id)
	b.byID[id] = booking{worker: worker, prefillTokens: prefillTokens, waiting: true, keys: keys}
	l := &b.loads[worker]
	l.requests++
	l.waiting++
	l.prefillTokens += prefillTokens
	if b.active == nil {
		return
	}
	for _, k := range keys {
		if b.active.add(k, worker) {
			l.blocks++
		}
	}
}

// firstToken tells that a request's prefill is over.
func (b *book) firstToken(id uint64) {
	at, ok := b.byID[id]
	if !ok || !at.waiting {
		return
	}
	l := &b.loads[at.worker]
	l.waiting--
	l.prefillTokens -= at.prefillTokens
	at.waiting, at.prefillTokens = false, 0
	b.byID[id] = at
}

// done releases a request; an unknown id does nothing.
func (b *book) done(id uint64) {
	b.firstToken(id)
	at, ok := b.byID[id]
	if !ok {
		return
	}
	delete(b.byID, id)
	l := &b.loads[at.worker]
	l.requests--
	if b.active == nil {
		return
	}
	for _, k := range at.keys {
		if b.active.remove(k, at.worker) {
			l.blocks--
		}
	}
}

// newBlocks returns how many of a prompt's blocks no request in flight on a
// worker holds yet. Whoever holds a block holds those before it, so the first
// one that isn't held is found by halving.
func (b *book) newBlocks(worker int, keys []kv.Key) int {
	return len(keys) - leadingRun(len(keys), func(i int) bool {
		return b.active.held(keys[i], worker)
	})
}

// leadingRun returns how many of n blocks are held from the first on, where a
// held block means that those before it are held too.
func leadingRun(n int, held func(i int) bool) int {
	if n == 0 || !held(0) {
		return 0
	}
	low, high := 1, n // the first low are held
	for low < high {
		mid := (low + high) / 2
		if held(mid) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
