package testkit

import (
	"runtime"
	"testing"
)

// later is a testing.TB whose clean-ups run when it is told, and that counts
// errors instead of failing.
type later struct {
	deaf
	cleanups []func()
}

func (l *later) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

func (l *later) end() {
	for i := len(l.cleanups) - 1; i >= 0; i-- {
		l.cleanups[i]()
	}
}

func TestAtRestFindsWhatIsLeft(t *testing.T) {
	size, gauge := 3, "# TYPE busy gauge\nbusy 0\n"
	var kept []byte
	leave := make(chan struct{})
	defer close(leave)
	for _, c := range []struct {
		name   string
		happen func()
		undo   func()
		want   int
	}{
		{"nothing", func() { size++; size-- }, func() {}, 0},
		{"a map entry", func() { size++ }, func() { size-- }, 1},
		{"a gauge", func() { gauge = "# TYPE busy gauge\nbusy 2\n" }, func() { gauge = "# TYPE busy gauge\nbusy 0\n" }, 1},
		{"below zero", func() { gauge += "# TYPE other gauge\nother -1\n" }, func() { gauge = "# TYPE busy gauge\nbusy 0\n" }, 1},
		{"memory", func() { kept = make([]byte, 8<<20) }, func() { kept = nil }, 1},
		{"a goroutine", func() { go func() { <-leave }() }, func() {}, 1},
	} {
		l := &later{deaf: deaf{TB: t}}
		AtRest(l, Rest{Metrics: func() string { return gauge }, Zero: []string{"busy"},
			Sizes: map[string]func() int{"entries": func() int { return size }}, HeapBytes: 4 << 20})
		c.happen()
		l.end()
		if l.errors != c.want {
			t.Errorf("%s: %d complaints, want %d", c.name, l.errors, c.want)
		}
		c.undo()
	}
	runtime.KeepAlive(kept)
}

func TestHeapPeak(t *testing.T) {
	l := &later{deaf: deaf{TB: t}}
	peak := HeapPeak(l)
	b := make([]byte, 32<<20)
	if p := peak(); p < int64(len(b)) {
		t.Errorf("peak is %d with %d bytes held", p, len(b))
	}
	l.end()
}
