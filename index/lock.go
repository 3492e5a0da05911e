package index

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// lock is a lock for many readers or one writer. A shard is locked for each
// change, mostly for some ten nanoseconds, so what the lock costs counts: here
// it is one atomic operation to take it and one to give it back, where a
// sync.RWMutex needs four of a writer, and 4 bytes, so that a shard fits a cache
// line.
//
// Who finds it taken looks again for a moment, and then sleeps in a bed that all
// locks share. Readers that come while a writer waits wait, too.
type lock struct {
	// state is how many readers are in or about to look whether they may be, and
	// above these whether somebody sleeps, and whether a writer is in or waits for
	// the readers to leave.
	state atomic.Int32
}

const (
	writer    = -1 << 31
	sleepers  = 1 << 30
	readers   = sleepers - 1
	lookAgain = 64
)

// bed is where those sleep who wait for a lock.
type bed struct {
	mu   sync.Mutex
	cond sync.Cond
}

func (b *bed) init() { b.cond.L = &b.mu }

func (l *lock) rlock(b *bed) {
	for l.state.Add(1) < 0 {
		l.runlock(b) // a writer may wait for that
		b.wait(l, noWriter)
	}
}

func (l *lock) runlock(b *bed) {
	if s := l.state.Add(-1); s&sleepers != 0 && s&readers == 0 {
		b.wake(l)
	}
}

func (l *lock) lock(b *bed) {
	if !l.state.CompareAndSwap(0, writer) {
		l.lockSlow(b)
	}
}

func (l *lock) lockSlow(b *bed) {
	for {
		if s := l.state.Load(); s >= 0 && l.state.CompareAndSwap(s, s|writer) {
			break
		}
		b.wait(l, noWriter)
	}
	b.wait(l, noReader)
}

func (l *lock) unlock(b *bed) {
	if s := l.state.Add(writer); s&sleepers != 0 { // adding it again takes it away
		b.wake(l)
	}
}

func noWriter(state int32) bool { return state >= 0 }
func noReader(state int32) bool { return state&readers == 0 }

// wait returns once ready was true of l's state for a moment.
func (b *bed) wait(l *lock, ready func(state int32) bool) {
	for range lookAgain {
		if ready(l.state.Load()) {
			return
		}
	}
	runtime.Gosched()
	if ready(l.state.Load()) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Who lets us in now sees that we sleep, and can't wake us before we do.
	for l.state.Or(sleepers); !ready(l.state.Load()); l.state.Or(sleepers) {
		b.cond.Wait()
	}
}

// wake wakes all; those who wait for another lock, or still have to, sleep again.
func (b *bed) wake(l *lock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.state.And(^sleepers)
	b.cond.Broadcast()
}
