package crdt

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// TestDeltaReadsAsWritten: any delta that a page makes comes through, with ages
// rounded up and remaining lives down to milliseconds.
func TestDeltaReadsAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewPage(20)
		now := int64(0)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			key := rapid.StringN(0, 4, 8).Draw(t, "key")
			if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
				p.Delete(key)
			} else {
				p.Put(now, key, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "value"), rapid.SampledFrom([]int64{0, 1, 1e6, 1e12}).Draw(t, "life"))
			}
			now += rapid.SampledFrom([]int64{0, 1, 999_999, 5e6}).Draw(t, "time")
		}
		from := Position{Version: rapid.Uint64Max(p.At().Version).Draw(t, "version")}
		from.Deleted = rapid.Uint64Range(from.Version, p.At().Deleted).Draw(t, "deleted")
		d := p.Since(now, from, rapid.IntRange(0, 300).Draw(t, "bytes"))
		wire := d.Append([]byte("before"))
		got, err := ReadDelta(wire[len("before"):])
		for i := range d.Items {
			it := &d.Items[i]
			it.Age = (it.Age + nanosPerMilli - 1) / nanosPerMilli * nanosPerMilli
			if it.Remaining >= 0 {
				it.Remaining -= it.Remaining % nanosPerMilli
			}
		}
		if diff := cmp.Diff(d, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
		if cut := rapid.IntRange(6, len(wire)-1).Draw(t, "cut"); true {
			if _, err := ReadDelta(wire[6:cut]); !errors.Is(err, ErrDelta) {
				t.Fatal("a beginning was read:", err)
			}
		}
	})
}

// TestDeltaGolden pins the format.
func TestDeltaGolden(t *testing.T) {
	d := Delta{
		From: Position{1, 1}, To: Position{4, 5}, Gone: []GoneKey{{"x", 5}},
		Items: []DeltaItem{{"k", []byte("v"), 3, 2_000_001, -1}, {"l", nil, 4, 0, 2_999_999}},
	}
	want := "97" + "c2" + "01010405" + "92a17805" + "9a" + "a16b" + "c40176" + "03" + "03" + "ff" + "a16c" + "c400" + "04" + "00" + "02"
	if got := hex.EncodeToString(d.Append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDeltaRefuses(t *testing.T) {
	long := strings.Repeat("00", MaxKeyBytes+1)
	for name, wire := range map[string]string{
		"nothing":              "",
		"another shape":        "96c20101040590",
		"nil for a version":    "97c2c0010405" + "9090",
		"backwards":            "97c202020101" + "9090",
		"a whole that goes on": "97c301010202" + "9090",
		"ahead of deletions":   "97c200000201" + "9090",
		"half a deletion":      "97c201010405" + "91a178" + "90",
		"a deletion too late":  "97c201010405" + "92a17806" + "90",
		"values out of order":  "97c201010405" + "90" + "9aa16bc4000300ff" + "a16bc4000300ff",
		"an age below 0":       "97c201010405" + "90" + "95a16bc40003ffff",
		"a long key":           "97c201010405" + "92da0401" + long + "05" + "90",
		"more than all":        "97c201010405" + "dd7fffffff",
		"a nil array":          "97c201010405" + "c090",
		"something behind":     "97c2010104059090" + "00",
	} {
		b, err := hex.DecodeString(wire)
		if err != nil {
			t.Fatal(name, err)
		}
		if d, err := ReadDelta(b); !errors.Is(err, ErrDelta) {
			t.Errorf("%s: read %+v, %v", name, d, err)
		}
	}
}

// FuzzReadDelta: a peer's bytes never do more than fail; what was read can be
// merged and said again.
func FuzzReadDelta(f *testing.F) {
	p := NewPage(3)
	for _, key := range []string{"a", "b", "c", "d"} {
		p.Put(0, key, []byte(key), 5e9)
	}
	whole := p.Since(1, Position{9, 9}, 1000)
	part := p.Since(1, Position{1, 1}, 1)
	f.Add(whole.Append(nil))
	f.Add(part.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ReadDelta(b)
		if err != nil {
			return
		}
		again, err := ReadDelta(d.Append(nil))
		if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
		p := NewPage(3)
		p.Put(0, "a", nil, 0)
		p.Merge(0, &d, nil)
		if p.Len() > 3 {
			t.Fatalf("%d values on a page of 3", p.Len())
		}
	})
}
