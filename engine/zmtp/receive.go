package zmtp

import (
	"bufio"
	"fmt"
)

// receiver reads messages off a connection and hands commands to its owner.
type receiver struct {
	r        *bufio.Reader
	maxBytes int // of one message, all frames together
	maxParts int // frames of one message
	// command handles every command but ERROR; its error ends the connection.
	command func(name string, data []byte) error
}

// message returns the next message. Commands may stand anywhere, even between
// the frames of a message: libzmq puts its heartbeats there.
func (in *receiver) message() ([][]byte, error) {
	frames := make([][]byte, 0, 3)
	budget := in.maxBytes
	for {
		flags, body, err := readFrame(in.r, budget)
		if err != nil {
			if len(frames) > 0 {
				err = unexpected(err)
			}
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := in.handle(body); err != nil {
				return nil, err
			}
			continue
		}
		if len(frames) == in.maxParts {
			return nil, fmt.Errorf("message of more than %d frames: %w", in.maxParts, ErrTooLarge)
		}
		budget -= len(body)
		frames = append(frames, body)
		if flags&flagMore == 0 {
			return frames, nil
		}
	}
}

func (in *receiver) handle(body []byte) error {
	name, data, err := parseCommand(body)
	if err != nil {
		return err
	}
	if name == "ERROR" {
		return fmt.Errorf("peer reports an error: %q", errorReason(data))
	}
	return in.command(name, data)
}
