package kvwire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/kvwire/wiretest"
	"github.com/rhizome-router/rhizome/engine/vllm"
)

func TestGoldenFrames(t *testing.T) {
	for engine, read := range map[string]func([][]byte) (kvwire.Message, error){"live-frame": kvwire.Live, "replay-frame": kvwire.Replay} {
		for _, s := range wiretest.Goldens(t, engine) {
			t.Run(s.ID, func(t *testing.T) { checkFrames(t, s, read) })
		}
	}
}

func checkFrames(t *testing.T, s wiretest.Sample, read func([][]byte) (kvwire.Message, error)) {
	var frames [][]byte
	for _, f := range s.Frames {
		frames = append(frames, wiretest.Unhex(t, f))
	}
	if s.ID == "F9" { // a request of ours
		if got := kvwire.ReplayRequest(5000); len(frames[0]) != 0 || !cmp.Equal([][]byte{nil, frames[1]}, got) {
			t.Errorf("%x, want %x", got, frames)
		}
		return
	}
	m, err := read(frames)
	if (err != nil) != (s.Error == "batch") {
		t.Fatalf("%s: error %v, want kind %q", s.Name, err, s.Error)
	}
	if m.End != s.End {
		t.Errorf("%s: end %v, want %v", s.Name, m.End, s.End)
	}
	if err != nil || s.End {
		return
	}
	if m.Seq != s.SeqNo(t) {
		t.Errorf("%s: seq %d, want %s", s.Name, m.Seq, s.Seq)
	}
	s.Check(t, m.Payload, vllm.Decode)
}
