package lease

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// Whoever waits for Raft is told what came of it, and doesn't wait for one that has
// stopped, which may have forgotten what it was asked.
func TestNobodyWaitsForARaftThatStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &voter{done: make(chan struct{})}
		failed := errors.New("refused")
		if err := v.await(func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("told %v", err)
		}
		forgotten, result := make(chan struct{}), make(chan error)
		go func() { result <- v.await(func() error { <-forgotten; return nil }) }()
		synctest.Wait()
		select {
		case err := <-result:
			t.Fatalf("did not wait: %v", err)
		default:
		}
		close(v.done)
		if err := <-result; !errors.Is(err, raft.ErrRaftShutdown) {
			t.Errorf("told %v by one that stopped", err)
		}
		close(forgotten)
	})
}
