package model

import (
	"testing"
)

// hybrid is a worker with a window of 40 tokens, 3 blocks of 16.
func hybrid(t *testing.T, blocks int) *Worker {
	c := small(16 * blocks)
	c.Tiers, c.Preset.WindowTokens, c.Watermark = nil, 40, 1
	return newWorker(t, c)
}

func TestWindowLimitsTheHit(t *testing.T) {
	w := hybrid(t, 70)
	var l log
	hit := func(id uint64, at float64, family uint64, tokens int) int {
		l = log{}
		submit(t, w, at, Request{ID: id, PromptTokens: tokens, OutputTokens: 1, Keys: keys(family, tokens/16)})
		drain(w, l.sink)
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		return l.one(t, FirstToken, id).HBMTokens
	}
	if n := hit(1, 0, 1, 321); n != 0 {
		t.Fatalf("hit %d in an empty cache", n)
	}
	var full, windowed int
	for _, e := range l.of(Stored, 1) {
		if e.Group == WindowGroup {
			windowed += len(e.Blocks)
			if e.Contents != nil {
				t.Errorf("%+v has contents", e)
			}
		} else {
			full += len(e.Blocks)
		}
	}
	if full != 20 || windowed != 20 {
		t.Fatalf("%d blocks and %d of the window were told, want 20 and 20", full, windowed)
	}
	// Both groups have everything: usable at any point.
	if n := hit(2, 1e6, 1, 161); n != 160 {
		t.Errorf("hit %d within the prefix, want 160", n)
	}
	if n := hit(3, 2e6, 1, 321); n != 320 {
		t.Errorf("hit %d of the whole prefix, want 320", n)
	}
	// 25 of 29 blanks and the oldest leave: sliding blocks that were let go
	// while the prompt was computed, before those of full attention.
	if n := hit(4, 3e6, 2, 289); n != 0 {
		t.Errorf("hit %d of another prefix", n)
	}
	gone := map[uint16]int{}
	for _, e := range l.events {
		if e.Kind == Removed {
			gone[e.Group] += len(e.Blocks)
		}
	}
	if gone[0] != 0 || gone[WindowGroup] == 0 {
		t.Fatalf("%d blocks and %d of the window left, want only some of the window", gone[0], gone[WindowGroup])
	}
	if n := hit(5, 4e6, 1, 321); n != 320 {
		t.Errorf("hit %d at the prefix's end, where the window is still there, want 320", n)
	}
	if n := hit(6, 5e6, 1, 161-80); n >= 80 {
		t.Errorf("hit %d where the window is gone", n)
	}
}

func TestWindowOfOneBlockAtLeast(t *testing.T) {
	w := hybrid(t, 20)
	if got := w.MaxTokens(); got != (20-4)*16+1 {
		t.Errorf("at most %d tokens, want %d: 4 blocks are of the window", got, (20-4)*16+1)
	}
	c := w.Config()
	if len(c.Tiers) != 0 {
		t.Errorf("tiers %+v of a worker with a window", c.Tiers)
	}
	c.Tiers = small(320).Tiers
	if _, err := New(c); err == nil {
		t.Error("a window and a lower tier were accepted")
	}
}
