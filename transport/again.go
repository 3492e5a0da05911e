package transport

import (
	"context"
	"time"
)

// QUIC waits twice as long after each packet of a handshake that nobody answers:
// after 3 s of a cut the next one leaves 3 s later, however soon the cut is over.
// So another handshake begins every handshakeAgain beside those that go on, since
// a slow peer may yet answer the first; the first that is through is taken.
const (
	handshakeAgain = time.Second
	maxHandshakes  = int(dialTimeout / handshakeAgain)
)

// first makes attempts, one more every so often and at most so many, until one
// succeeds, or fails before ctx ends. The others are broken off and waited for;
// what they make nevertheless goes to drop.
func first[T any](ctx context.Context, every time.Duration, most int, try func(context.Context) (T, error), drop func(T)) (got T, err error) {
	type result struct {
		made T
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	results, open := make(chan result, most), 0
	defer func() {
		cancel()
		for ; open > 0; open-- {
			if r := <-results; r.err == nil {
				drop(r.made)
			}
		}
	}()
	begin := func() {
		open++
		go func() {
			made, err := try(ctx)
			results <- result{made, err}
		}()
	}
	begin()
	again := time.NewTicker(every)
	defer again.Stop()
	for begun := 1; ; {
		select {
		case r := <-results:
			open--
			return r.made, r.err
		case <-again.C:
			if begun < most {
				begun++
				begin()
			}
		}
	}
}
