package gateway

import (
	"errors"
	"io"
	"slices"
)

// What is decoded to be looked at may be so many times what has come, and
// freeTappedBytes more. Events of one token each shrink to a thirtieth; a bomb
// expands a million times.
const (
	maxTappedRatio  = 300
	freeTappedBytes = 1 << 20
)

var errTapBomb = errors.New("a response expands too much to be looked at")

// tapDecoder lets a tap see through a response's Content-Encoding, while the
// bytes that the client gets stay as they are. It has one goroutine, which
// works only inside Write and Close: between them the tap stands still.
type tapDecoder struct {
	in   chan []byte
	want chan struct{} // all of the last piece is used up
	done chan struct{} // the goroutine has ended
	err  error         // why it ended; after done

	pending []byte
	came    int64 // encoded bytes
	made    int64 // decoded bytes
	begun   bool
	ended   bool
}

// newTapDecoder returns a decoder into t of what codings were applied to, the
// last first; nil where one of them can't be decoded. Close it.
func newTapDecoder(t *tap, codings []string) *tapDecoder {
	if len(codings) > maxCodings || slices.ContainsFunc(codings, func(c string) bool { return !slices.Contains(supported, c) }) {
		return nil
	}
	d := &tapDecoder{in: make(chan []byte), want: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(d.done)
		d.err = d.run(t, codings)
	}()
	return d
}

func (d *tapDecoder) run(t *tap, codings []string) error {
	var r io.Reader = (*tapSource)(d)
	for _, coding := range codings {
		plain, err := decoderOf(coding, r)
		if err != nil {
			return err
		}
		defer plain.Close()
		r = plain
	}
	b := make([]byte, 4<<10)
	for {
		n, err := r.Read(b)
		t.Write(b[:n])
		switch d.made += int64(n); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case d.made > freeTappedBytes+maxTappedRatio*d.came:
			return errTapBomb
		}
	}
}

// Write decodes the next piece of the response; it never fails and doesn't keep p.
func (d *tapDecoder) Write(p []byte) {
	select {
	case d.in <- p:
	case <-d.done:
		return
	}
	select {
	case <-d.want:
	case <-d.done:
	}
}

// Close tells that the response ended. It reports whether the tap has seen all
// of it: up to where it was cut off, if it was, but not what is no encoding.
func (d *tapDecoder) Close() (seen bool) {
	close(d.in)
	<-d.done
	return d.err == nil || errors.Is(d.err, io.ErrUnexpectedEOF)
}

// tapSource is what a tapDecoder's goroutine reads.
type tapSource tapDecoder

func (s *tapSource) Read(p []byte) (int, error) {
	if len(s.pending) == 0 && !s.ended {
		if s.begun {
			s.want <- struct{}{} // somebody waits for it
		}
		s.begun = true
		piece, ok := <-s.in
		s.pending, s.ended = piece, !ok
		s.came += int64(len(piece))
	}
	if s.ended {
		return 0, io.EOF
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}
