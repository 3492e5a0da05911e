package zmtp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

func testReceiver(raw []byte) *receiver {
	return &receiver{
		r: bufio.NewReaderSize(bytes.NewReader(raw), 16), maxBytes: 1 << 16, maxParts: 8,
		command: func(string, []byte) error { return nil },
	}
}

// What is written is read back, however it is cut into messages and frames.
func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 8), rapid.SliceOfN(rapid.Byte(), 250, 300))
		messages := rapid.SliceOfN(rapid.SliceOfN(body, 1, 8), 0, 5).Draw(t, "messages")
		var raw []byte
		for _, m := range messages {
			raw = append(appendCommand(raw, "PING", []byte{0, 0}), encodeMessage(m)...)
		}
		in := testReceiver(raw)
		for i, want := range messages {
			got, err := in.message()
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Fatalf("message %d: %d frames, want %d", i, len(got), len(want))
			}
			for j := range want {
				if !bytes.Equal(got[j], want[j]) {
					t.Fatalf("message %d, frame %d: %x, want %x", i, j, got[j], want[j])
				}
			}
		}
		if _, err := in.message(); err != io.EOF {
			t.Fatalf("at the end: %v, want EOF", err)
		}
	})
}

func TestMalformedFrames(t *testing.T) {
	long := func(n byte) []byte { return []byte{flagLong, 0, 0, 0, 0, n, 0, 0, 0} }
	for name, c := range map[string]struct {
		raw  []byte
		want error
	}{
		"reserved bits":        {[]byte{0x08, 0}, errMalformed},
		"command with more":    {[]byte{flagCommand | flagMore, 0}, errMalformed},
		"command without name": {[]byte{flagCommand, 0}, errMalformed},
		"command cut":          {[]byte{flagCommand, 2, 4, 'P'}, errMalformed},
		"cut in the header":    {[]byte{flagLong, 0}, io.ErrUnexpectedEOF},
		"cut in the body":      {[]byte{0, 4, 1}, io.ErrUnexpectedEOF},
		"cut between frames":   {[]byte{flagMore, 1, 1}, io.ErrUnexpectedEOF},
		"16 MiB":               {long(1), ErrTooLarge},
		"negative length":      {append([]byte{flagLong}, bytes.Repeat([]byte{0xff}, 8)...), ErrTooLarge},
		"too many parts":       {append(bytes.Repeat([]byte{flagMore, 0}, 8), 0, 0), ErrTooLarge},
		"too much in parts":    {append(encodeMessage([][]byte{make([]byte, 60_000), make([]byte, 6_000)}), 0), ErrTooLarge},
	} {
		if _, err := testReceiver(c.raw).message(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// An announced length alone must not make us hold memory.
func TestBodyGrowsAsItArrives(t *testing.T) {
	want := make([]byte, 5<<20+3)
	want[len(want)-1] = 7
	got, err := readBody(bytes.NewReader(want), len(want))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("a long body: %v", err)
	}
	n := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			readBody(bytes.NewReader(nil), 64<<20)
		}
	}).AllocedBytesPerOp()
	if n > 2*growStepBytes {
		t.Errorf("%d bytes allocated for a body that never came", n)
	}
}

func FuzzReceiver(f *testing.F) {
	f.Add(encodeMessage([][]byte{nil, {1, 2, 3, 4, 5, 6, 7, 8}, bytes.Repeat([]byte{9}, 300)}))
	f.Add(appendCommand(nil, "PING", []byte{0, 1, 'x'}))
	f.Add(appendCommand(nil, "ERROR", []byte{3, 'b', 'a', 'd'}))
	f.Add(ready(DEALER))
	f.Add([]byte{flagLong, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, raw []byte) {
		for in := testReceiver(raw); ; {
			frames, err := in.message()
			if err != nil {
				break
			}
			total := 0
			for _, m := range frames {
				total += len(m)
			}
			if len(frames) == 0 || len(frames) > in.maxParts || total > in.maxBytes {
				t.Fatalf("%d frames of %d bytes", len(frames), total)
			}
		}
		if len(raw) > 0 {
			parseReady(raw, SUB)
			pong(raw)
		}
	})
}

func BenchmarkReceive(b *testing.B) {
	raw := encodeMessage([][]byte{nil, make([]byte, 8), make([]byte, 300)})
	src := &repeat{raw: raw}
	in := &receiver{r: bufio.NewReaderSize(src, readBuffer), maxBytes: 1 << 20, maxParts: 8}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in.message(); err != nil {
			b.Fatal(err)
		}
	}
}

type repeat struct {
	raw []byte
	at  int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], r.raw[r.at:])
		n, r.at = n+m, (r.at+m)%len(r.raw)
	}
	return n, nil
}
