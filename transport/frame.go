package transport

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// MaxFrameBytes bounds a frame's payload: the largest batch that may not be
// split, 4 MiB, and what is around it.
const MaxFrameBytes = 4<<20 + 4<<10

// A frame is its payload's length and CRC-32C, 4 bytes each, big endian, and
// the payload. TLS keeps others from changing it; the sum is for what happens
// before and after TLS: memory that flips and code that errs.
const frameHeaderBytes = 8

// appendFrame appends a payload as a frame.
func appendFrame(b, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, checksum(payload))
	return append(b, payload...)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// FrameError says that a peer sent what is no frame. The stream it came on is
// of no more use.
type FrameError struct {
	// Reason is "oversized" or "corrupted".
	Reason string
	detail string
}

func (e *FrameError) Error() string { return e.Reason + " frame: " + e.detail }

// frameReader reads frames from a stream.
type frameReader struct {
	from     io.Reader
	maxBytes uint32
	header   [frameHeaderBytes]byte
}

func newFrameReader(from io.Reader, maxBytes uint32) *frameReader {
	return &frameReader{from: from, maxBytes: maxBytes}
}

// eagerBytes is how much is allocated on a peer's word alone.
const eagerBytes = 64 << 10

// next returns the next payload, which is the caller's to keep. The error is
// io.EOF after the last frame, or a *FrameError, or the stream's.
func (r *frameReader) next() ([]byte, error) {
	if _, err := io.ReadFull(r.from, r.header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(r.header[:4])
	if n > r.maxBytes {
		return nil, &FrameError{"oversized", fmt.Sprintf("%d bytes of at most %d", n, r.maxBytes)}
	}
	payload := make([]byte, 0, min(n, eagerBytes))
	for uint32(len(payload)) < n {
		if len(payload) == cap(payload) { // the peer kept its word so far
			payload = append(make([]byte, 0, min(int(n), 4*cap(payload))), payload...)
		}
		have := len(payload)
		payload = payload[:cap(payload)]
		if _, err := io.ReadFull(r.from, payload[have:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	if sum := binary.BigEndian.Uint32(r.header[4:]); sum != checksum(payload) {
		return nil, &FrameError{"corrupted", fmt.Sprintf("%d bytes whose checksum is %08x, not %08x", n, checksum(payload), sum)}
	}
	return payload, nil
}
