package lease

import (
	"log/slog"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
)

// Words that nobody has read yet are bounded; what has no room is counted.
func TestWordsAreBounded(t *testing.T) {
	g, err := NewGroup(Config{}, Deps{Clock: new(clock.Virtual), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for range maxInbox + 5 {
		g.hear("peer", []byte("words"))
	}
	if held, dropped := len(g.inbox), g.counts.dropped.Load(); held != maxInbox || dropped != 5 {
		t.Errorf("%d wait, %d were dropped", held, dropped)
	}
}
