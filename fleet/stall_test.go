package fleet

import (
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

func TestStallNeedsThreeUnconfirmedFirstTokens(t *testing.T) {
	var s stall
	at := func(d time.Duration) clock.Instant { return clock.Instant(d) }
	s.firstToken(at(0))
	s.firstToken(at(time.Second))
	if s.stalled(at(time.Hour)) {
		t.Error("two are not enough")
	}
	s.firstToken(at(2 * time.Second))
	if s.stalled(at(4 * time.Second)) {
		t.Error("the third has 2 s to be confirmed")
	}
	s.firstToken(at(3 * time.Second)) // a further one must not restart the wait
	if !s.stalled(at(4*time.Second + 1)) {
		t.Error("three first tokens and no batch")
	}
	s.batch()
	if s.stalled(at(time.Hour)) {
		t.Error("a batch is life")
	}
}
