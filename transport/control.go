package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/quic-go/quic-go"
)

// hello is the first thing each end says, on its first one-way stream. Members
// that a reader doesn't know are ignored; a change of meaning needs a new major
// version.
type hello struct {
	// Boot is the sender's name, unique per start.
	Boot string `json:"boot"`
	// Addr is where peers reach the sender.
	Addr netip.AddrPort `json:"addr"`
}

const maxHelloBytes = 1 << 10

// heartbeatBytes is the size of a sign of life. A packet must have more than 42
// bytes for a restarted peer to answer it with a stateless reset (RFC 9000
// §10.3, and quic-go's bound), which a bare PING of QUIC's has not.
const heartbeatBytes = 64

// control is the pair of one-way streams that a session opens with: the hello,
// then signs of life, until the connection ends.
type control struct {
	out sendStream
	in  *frameReader
	raw receiveStream
}

// openControl sends our hello and waits for the peer's.
func openControl(ctx context.Context, l link, mine hello) (*control, hello, error) {
	stop := context.AfterFunc(ctx, func() { l.close("no hello in time") })
	defer stop()
	var theirs hello
	out, err := l.openUni(ctx)
	if err != nil {
		return nil, theirs, fmt.Errorf("say hello: %w", err)
	}
	out.SetPriority(0, false) // before all else, or bulk would make us look dead
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, theirs, fmt.Errorf("say hello: %w", err)
	}
	if _, err := out.Write(appendFrame(nil, text)); err != nil {
		return nil, theirs, fmt.Errorf("say hello: %w", err)
	}
	raw, err := l.acceptUni(ctx)
	if err != nil {
		return nil, theirs, fmt.Errorf("wait for the peer's hello: %w", err)
	}
	in := newFrameReader(raw, maxHelloBytes)
	text, err = in.next()
	if err != nil {
		var bad *FrameError
		if errors.As(err, &bad) {
			return nil, theirs, &refusal{refusedHello, "its hello is no frame: " + bad.Error()}
		}
		return nil, theirs, fmt.Errorf("wait for the peer's hello: %w", err)
	}
	if theirs, err = parseHello(text); err != nil {
		return nil, theirs, &refusal{refusedHello, err.Error()}
	}
	return &control{out: out, in: in, raw: raw}, theirs, nil
}

// parseHello reads what a stranger may have written.
func parseHello(text []byte) (hello, error) {
	var h hello
	if err := json.Unmarshal(text, &h); err != nil {
		return hello{}, errors.New("its hello can't be read")
	}
	if !bootName.MatchString(h.Boot) || len(h.Boot) > maxBootBytes {
		return hello{}, errors.New("its hello has no proper boot name")
	}
	if !h.Addr.IsValid() || h.Addr.Port() == 0 || h.Addr.Addr().IsUnspecified() {
		return hello{}, errors.New("its hello has no address to reach it at")
	}
	h.Addr = canonical(h.Addr)
	return h, nil
}

// beat sends signs of life, and ends the session when nobody uses it.
func (c *control) beat(s *session) {
	tick := time.NewTicker(HeartbeatInterval)
	defer tick.Stop()
	sign := appendFrame(nil, make([]byte, heartbeatBytes))
	for {
		select {
		case <-s.Context().Done():
			return
		case <-tick.C:
		}
		if s.unused() >= UnusedTimeout {
			s.end("unused")
			return
		}
		// A peer that takes no more has stopped reading; its silence will tell.
		_ = c.out.TryWriteAll(sign)
	}
}

// listen reads the peer's signs of life and ends the session without them.
func (c *control) listen(s *session) {
	for {
		_ = c.raw.SetReadDeadline(time.Now().Add(SilenceTimeout))
		_, err := c.in.next()
		var bad *FrameError
		var ended *quic.StreamError
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.end("silent")
			return
		case errors.As(err, &bad), errors.As(err, &ended), errors.Is(err, io.EOF):
			s.end("broken")
			return
		default: // the connection's own end
			return
		}
	}
}
