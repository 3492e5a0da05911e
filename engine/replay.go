package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/zmtp"
)

// messageOverhead is what a replayed message costs besides its payload.
const messageOverhead = 128

// replayGap ends a round that has brought something, sooner than ReplayIdle: an
// answer comes in one go from the engine's memory, so a pause in it means that
// the engine's socket was full and dropped the rest. Another round asks for that.
const replayGap = 250 * time.Millisecond

// fetch asks the engine once for all batches from seq on and drains the answer
// into memory: while it is served, the engine publishes nothing, and what we
// don't drain is dropped. complete is true when the end marker came. What came
// is in order but may have holes; it is worth something even with an error.
func (f *Feed) fetch(ctx context.Context, from uint64) (got []kvwire.Message, complete bool, err error) {
	f.rounds.Add(1)
	dialCtx, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	// A connection of its own for each round: leftovers of a round that was
	// given up would look like the next one's answer.
	conn, err := zmtp.Dial(dialCtx, f.replay, zmtp.Options{Type: zmtp.DEALER, HandshakeTimeout: f.cfg.ConnectTimeout, Dialer: f.cfg.Guard.socketDialer(f.replay)})
	if err != nil {
		return nil, false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.Send(kvwire.ReplayRequest(from)...); err != nil {
		return nil, false, fmt.Errorf("ask %s for a replay: %w", f.replay, err)
	}
	budget := f.cfg.ReplayBytes
	for budget > 0 {
		idle := f.cfg.ReplayIdle
		if len(got) > 1 { // one may be what we had
			idle = min(idle, replayGap)
		}
		if err := conn.SetRecvDeadline(time.Now().Add(idle)); err != nil {
			return got, false, err
		}
		frames, err := conn.Recv()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return got, false, fmt.Errorf("replay from %s: nothing came for %v after %d messages, and no end", f.replay, idle, len(got))
		}
		if err != nil {
			return got, false, fmt.Errorf("replay from %s: %w", f.replay, err)
		}
		m, err := kvwire.Replay(frames)
		if err != nil {
			f.refused.Add(1)
			return got, false, fmt.Errorf("replay from %s: %w", f.replay, err)
		}
		if m.End {
			return got, true, nil
		}
		if n := len(got); m.Seq < from || n > 0 && m.Seq <= got[n-1].Seq {
			return got, false, fmt.Errorf("replay from %s: seq %d out of order in an answer from %d on", f.replay, m.Seq, from)
		}
		got = append(got, m)
		budget -= len(m.Payload) + messageOverhead
	}
	return got, false, nil
}
