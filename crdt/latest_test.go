package crdt

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func anyRegister(t *rapid.T) Register {
	small := rapid.Uint64Max(3)
	return Register{fmt.Sprint(small.Draw(t, "key")), small.Draw(t, "n"), small.Draw(t, "tie"), []byte{byte(small.Draw(t, "value"))}}
}

// TestLatestMergesInAnyOrder: whatever the order, and however often each comes,
// the result is the same; a digest is that of the contents.
func TestLatestMergesInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.Custom(anyRegister)).Draw(t, "registers")
		a, b := NewLatest(10), NewLatest(10)
		for _, r := range all {
			a.Merge(r)
		}
		for _, r := range append(rapid.Permutation(all).Draw(t, "another order"), all...) {
			if before, _ := b.Get(r.Key); b.Merge(r) != (b.at[r.Key].compare(before) > 0) && before.Key != "" {
				t.Fatalf("%+v over %+v", r, before)
			}
		}
		if diff := cmp.Diff(a.All(), b.All()); diff != "" || a.Digest() != b.Digest() {
			t.Fatalf("digests %x, %x\n%s", a.Digest(), b.Digest(), diff)
		}
		again := NewLatest(10)
		for _, r := range b.All() {
			again.Merge(r)
		}
		if again.Digest() != a.Digest() {
			t.Fatal("the digest depends on what was there before")
		}
		for _, r := range b.All() {
			b.Forget(r.Key)
		}
		if b.Digest() != 0 || b.Len() != 0 {
			t.Fatal("something is left")
		}
	})
}

func TestLatestIsBounded(t *testing.T) {
	l := NewLatest(1)
	if !l.Merge(Register{Key: "a"}) || l.Merge(Register{Key: "b"}) || !l.Merge(Register{Key: "a", N: 1}) || l.Refused() != 1 {
		t.Errorf("%+v, %d refused", l.All(), l.Refused())
	}
}
