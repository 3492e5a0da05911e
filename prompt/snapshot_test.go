package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// learnSome fills l with a few heads and conversations of an engine.
func learnSome(t testing.TB, e fakeEngine, l *Learned, talks int) (bodies [][]byte) {
	for n := range talks {
		turns := []string{words(fmt.Sprint("head", n%3), 1200), words(fmt.Sprint("u", n), 100)}
		for i := range 5 {
			e.teach(t, l, chat("", turns...))
			turns = append(turns, words(fmt.Sprint("a", n, i), 100), words(fmt.Sprint("u", n, i), 100))
		}
		bodies = append(bodies, chat("", turns...))
	}
	return bodies
}

func TestSnapshotsKnowTheSame(t *testing.T) {
	for name, e := range fakeEngines {
		l := newTestLearned()
		bodies := learnSome(t, e, l, 6)
		l.bump(1, 99)
		b := l.Snapshot(1 << 30)
		if bytes.Contains(b, []byte("head")) || strings.Contains(string(b), words("head0", 3)) {
			t.Error("a snapshot holds text")
		}
		again := newTestLearned()
		if err := again.Restore(b); err != nil {
			t.Fatal(err)
		}
		if got, want := again.Stats(), l.Stats(); got.Entries != want.Entries || got.Bytes != want.Bytes || got.Trusted != want.Trusted || got.Unusable != want.Unusable || len(again.versions) != len(l.versions) {
			t.Errorf("%s: restored %+v of %+v", name, got, want)
		}
		checkBooks(t, again)
		any := false
		for _, body := range bodies {
			n := e.check(t, again, body, form4)
			if want := e.check(t, l, body, form4); n != want {
				t.Errorf("%s: %d tokens known, before %d", name, n, want)
			}
			any = any || n > 0
		}
		if !any {
			t.Errorf("%s: nothing was learned", name)
		}
		if err := again.Restore(b); err != nil || again.Stats().Entries != l.Stats().Entries {
			t.Errorf("%s: restored twice: %v", name, err)
		}
	}
}

// Where there is little room the most recently used is kept, with what it rests
// on; what is left out is only not known.
func TestSnapshotsAreBounded(t *testing.T) {
	e := fakeEngines["plain"]
	l := newTestLearned()
	bodies := learnSome(t, e, l, 6)
	whole := len(l.Snapshot(1 << 30))
	for _, room := range []int{20, 1000, whole / 2, whole} {
		b := l.Snapshot(room)
		if len(b) > room {
			t.Errorf("%d bytes in room for %d", len(b), room)
		}
		again := newTestLearned()
		if err := again.Restore(b); err != nil {
			t.Fatal(err)
		}
		for _, body := range bodies {
			e.check(t, again, body, form4)
		}
		checkBooks(t, again)
	}
	small := newTestLearned()
	small.maxBytes = 4000
	if err := small.Restore(l.Snapshot(1 << 30)); err != nil {
		t.Fatal(err)
	}
	checkBooks(t, small)
}

func TestSnapshotsOfOtherVersionsAreRefused(t *testing.T) {
	l := newTestLearned()
	learnSome(t, fakeEngines["plain"], l, 2)
	b := l.Snapshot(1 << 30)
	for i := range 8 {
		other := bytes.Clone(b)
		other[i]++
		if err := newTestLearned().Restore(other); !errors.Is(err, ErrSnapshot) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for i := 0; i < len(b); i += 41 {
		again := newTestLearned()
		if err := again.Restore(b[:i]); err != nil && again.Stats().Entries > 0 {
			t.Fatalf("cut at %d: %d entries and %v", i, again.Stats().Entries, err)
		}
	}
}

func FuzzRestore(f *testing.F) {
	l := newTestLearned()
	bodies := learnSome(f, fakeEngines["thinking"], l, 1)
	f.Add(l.Snapshot(1 << 30))
	f.Add(l.Snapshot(400))
	f.Add(newTestLearned().Snapshot(100))
	r, err := Parse(Chat, bodies[0])
	if err != nil {
		f.Fatal(err)
	}
	class := fakeEngines["thinking"].class(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		l := newTestLearned()
		if err := l.Restore(b); err != nil {
			if !errors.Is(err, ErrSnapshot) || l.Stats().Entries > 0 {
				t.Fatalf("%v, %d entries", err, l.Stats().Entries)
			}
			return
		}
		checkBooks(t, l)
		r.known = nil
		if k := l.Find(r, class, form4); len(k.Keys) != k.Tokens/4 {
			t.Fatalf("%d blocks of %d tokens", len(k.Keys), k.Tokens)
		}
		checkBooks(t, l)
	})
}
