package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bits of a frame's first byte. The others are reserved and must be zero.
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
)

// growStepBytes is how much of an announced body is allocated before any of it
// arrived: a peer must send bytes to make us hold memory.
const growStepBytes = 1 << 20

// ErrTooLarge is wrapped by errors about a frame or a message over its limit.
var ErrTooLarge = errors.New("over the size limit")

// errMalformed is wrapped by errors about bytes that are no ZMTP.
var errMalformed = errors.New("malformed ZMTP")

// readFrame reads one frame whose body is at most maxBytes long. The body is
// freshly allocated, nil when empty.
func readFrame(r *bufio.Reader, maxBytes int) (flags byte, body []byte, err error) {
	flags, err = r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return 0, nil, fmt.Errorf("%w: reserved bits set in frame flags %#x", errMalformed, flags)
	}
	if flags&(flagMore|flagCommand) == flagMore|flagCommand {
		return 0, nil, fmt.Errorf("%w: a command can't have more frames", errMalformed)
	}
	size, err := readSize(r, flags&flagLong != 0)
	if err != nil {
		return 0, nil, unexpected(err)
	}
	if size > uint64(maxBytes) {
		return 0, nil, fmt.Errorf("frame of %d bytes: %w of %d", size, ErrTooLarge, maxBytes)
	}
	body, err = readBody(r, int(size))
	return flags, body, unexpected(err)
}

func readSize(r *bufio.Reader, long bool) (uint64, error) {
	if !long {
		b, err := r.ReadByte()
		return uint64(b), err
	}
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b[:]), nil
}

func readBody(r io.Reader, size int) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	body := make([]byte, min(size, growStepBytes))
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	for have := len(body); have < size; have = len(body) {
		next := make([]byte, min(size, 2*have))
		copy(next, body)
		if _, err := io.ReadFull(r, next[have:]); err != nil {
			return nil, err
		}
		body = next
	}
	return body, nil
}

// unexpected turns an end of stream inside a frame into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends one frame to dst. flags is flagMore, flagCommand or 0.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) <= 255 {
		dst = append(dst, flags, byte(len(body)))
	} else {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	}
	return append(dst, body...)
}

// appendMessage appends a multipart message to dst.
func appendMessage(dst []byte, frames [][]byte) []byte {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		dst = appendFrame(dst, flags, f)
	}
	return dst
}

// encodeMessage returns a multipart message in a slice of its own.
func encodeMessage(frames [][]byte) []byte {
	n := 0
	for _, f := range frames {
		n += 9 + len(f)
	}
	return appendMessage(make([]byte, 0, n), frames)
}

// appendCommand appends a command frame: a name and its data.
func appendCommand(dst []byte, name string, data []byte) []byte {
	body := make([]byte, 0, 1+len(name)+len(data))
	body = append(body, byte(len(name)))
	body = append(body, name...)
	body = append(body, data...)
	return appendFrame(dst, flagCommand, body)
}

// parseCommand splits a command frame's body into name and data.
func parseCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) || body[0] == 0 {
		return "", nil, fmt.Errorf("%w: command of %d bytes has no name", errMalformed, len(body))
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

// pong returns the answer to a PING command with the given data, framed.
func pong(data []byte) ([]byte, error) {
	// Two bytes of TTL, then at most 16 of context, which go back as they came.
	if len(data) < 2 || len(data) > 18 {
		return nil, fmt.Errorf("%w: PING with %d bytes of data", errMalformed, len(data))
	}
	return appendCommand(nil, "PONG", data[2:]), nil
}

// errorReason returns the text of an ERROR command's data.
func errorReason(data []byte) string {
	if len(data) > 0 && len(data) >= 1+int(data[0]) {
		return string(data[1 : 1+int(data[0])])
	}
	return "no reason given"
}
