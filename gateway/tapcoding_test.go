package gateway

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

// tappedThrough runs a tap over a response under a coding, cut into pieces of
// step bytes.
func tappedThrough(body []byte, coding string, step int) (t *tap, seen bool) {
	t = &tap{sse: true}
	d := newTapDecoder(t, []string{coding})
	for rest := body; len(rest) > 0; {
		n := min(step, len(rest))
		d.Write(rest[:n])
		rest = rest[n:]
	}
	seen = d.Close()
	t.Close()
	return t, seen
}

// FuzzTapDecoder: of any bytes under any coding the tap ends with the same,
// however they were cut, and what was well encoded it sees as if it had been
// plain.
func FuzzTapDecoder(f *testing.F) {
	stream := "data: {" + usageJSON + "}\n\ndata: [DONE]\n\n"
	for i, coding := range []string{"gzip", "zlib", "br", "zstd", "flate"} {
		f.Add(uint8(i), []byte(packed(&testing.T{}, coding, stream)), uint16(7))
	}
	f.Add(uint8(0), []byte("\x1f\x8bno gzip"), uint16(1))
	f.Add(uint8(3), []byte("\x28\xb5\x2f\xfd\x00"), uint16(2))
	f.Add(uint8(9), []byte(stream), uint16(3))
	f.Fuzz(func(t *testing.T, which uint8, body []byte, step uint16) {
		if len(body) > 1<<14 { // less than what is decoded of any bytes
			return
		}
		coding := supported[int(which)%len(supported)]
		whole, seen := tappedThrough(body, coding, len(body)+1)
		cut, cutSeen := tappedThrough(body, coding, int(step)+1)
		if !seen || !cutSeen {
			return // a bomb is given up by how much of it has come
		}
		if whole.usage != cut.usage || whole.failed != cut.failed || whole.Done() != cut.Done() {
			t.Fatalf("%s whole: %+v, cut: %+v", coding, whole.usage, cut.usage)
		}
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(body); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		through, seen := tappedThrough(b.Bytes(), "gzip", int(step)+1)
		usage, failed, done := tapped(true, string(body))
		if !seen || through.usage != usage || through.failed != failed || through.Done() != done {
			t.Fatalf("compressed %+v, plain %+v", through.usage, usage)
		}
	})
}

// TestTapDecoderReadsNoBomb: what expands without end is looked at for a while
// and then no more; the tap holds little of it.
func TestTapDecoderReadsNoBomb(t *testing.T) {
	if newTapDecoder(&tap{}, []string{"gzip", "exi"}) != nil {
		t.Error("a coding that is not known is decoded")
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 4 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	tap := &tap{sse: true}
	d := newTapDecoder(tap, []string{"gzip"})
	if _, err := io.Copy(writerOf(d.Write), &b); err != nil {
		t.Fatal(err)
	}
	if seen := d.Close(); seen || cap(tap.window) > 2*tapWindowBytes || d.made > 3<<20 {
		t.Errorf("4 MiB of nothing: seen %v, %d bytes were decoded, %d are held", seen, d.made, cap(tap.window))
	}
}

type writerOf func([]byte)

func (w writerOf) Write(p []byte) (int, error) { w(p); return len(p), nil }
