package kvwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrFrames is wrapped by errors about a message that is not framed as an
// event batch.
var ErrFrames = errors.New("not an event message")

// endSeq is the sequence number of a replay's end marker.
const endSeq = math.MaxUint64

// Message is one framed batch.
type Message struct {
	Seq     uint64
	Payload []byte // aliases the frame
	End     bool   // a replay is complete; Seq and Payload mean nothing
}

// Live reads a message of the live socket: topic, sequence number, payload.
func Live(frames [][]byte) (Message, error) {
	if len(frames) != 3 {
		return Message{}, fmt.Errorf("%w: live message of %d frames, want 3", ErrFrames, len(frames))
	}
	m, err := tail(frames)
	if err == nil && len(m.Payload) == 0 {
		return Message{}, fmt.Errorf("%w: live message %d has no payload", ErrFrames, m.Seq)
	}
	return m, err
}

// Replay reads a message of the replay socket, as a DEALER sees it: an empty
// frame, from vLLM 0.25 on the topic, then sequence number and payload. No
// payload marks the end.
func Replay(frames [][]byte) (Message, error) {
	if len(frames) != 3 && len(frames) != 4 || len(frames[0]) != 0 {
		return Message{}, fmt.Errorf("%w: replay message of %d frames, want an empty one and 2 or 3 more", ErrFrames, len(frames))
	}
	m, err := tail(frames)
	if err != nil {
		return Message{}, err
	}
	if len(m.Payload) == 0 {
		return Message{End: true}, nil
	}
	return m, nil
}

// ReplayRequest returns the message by which a DEALER asks for all batches
// from seq on.
func ReplayRequest(seq uint64) [][]byte {
	return [][]byte{nil, binary.BigEndian.AppendUint64(nil, seq)}
}

func tail(frames [][]byte) (Message, error) {
	seq, payload := frames[len(frames)-2], frames[len(frames)-1]
	if len(seq) != 8 {
		return Message{}, fmt.Errorf("%w: sequence number of %d bytes, want 8", ErrFrames, len(seq))
	}
	m := Message{Seq: binary.BigEndian.Uint64(seq), Payload: payload}
	if m.Seq == endSeq && len(payload) > 0 {
		return Message{}, fmt.Errorf("%w: the end marker has a payload", ErrFrames)
	}
	return m, nil
}
