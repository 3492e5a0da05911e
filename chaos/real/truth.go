//go:build linux

package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/vllm"
	"github.com/rhizome-router/rhizome/engine/zmtp"
	"github.com/rhizome-router/rhizome/index"
)

// truthPatience is how long a worker may take to replay all that it said.
const truthPatience = 20 * time.Second

// truths are what workers that are up said in their present life, all of it, as
// they replay it. One that can't replay from the beginning is left out.
func (c *cluster) truths(ctx context.Context) (all []chaos.Stream, err error) {
	for _, w := range c.workers {
		w.mu.Lock()
		up := w.proc != nil
		w.mu.Unlock()
		if !up {
			continue
		}
		truth, whole, err := c.truth(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("what worker %d holds: %w", w.n, err)
		}
		if whole {
			all = append(all, truth)
		}
	}
	return all, nil
}

// truth has one worker replay. Batches that it can't replay any more count as
// said, and whole is false if those are the first ones.
func (c *cluster) truth(ctx context.Context, w *worker) (truth chaos.Stream, whole bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, truthPatience)
	defer cancel()
	s := crdt.NewStream(crdt.StreamConfig{Counted: true})
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return truth, false, fmt.Errorf("no end after %v, at batch %d", truthPatience, s.Next())
		}
		var round []kvwire.Message
		if round, done, err = c.replay(ctx, w, s.Next()); err != nil {
			return truth, false, err
		}
		for i, m := range round {
			if m.Seq > s.Next() && s.Next() == 0 {
				return truth, false, nil
			}
			if m.Seq > s.Next() && i > 0 { // dropped on its way, perhaps
				done = false
				break
			}
			if m.Seq > s.Next() {
				s.Skip(s.Next(), m.Seq-1, ignore)
			}
			b, err := vllm.Decode(m.Payload, modelName)
			if err != nil {
				return truth, false, fmt.Errorf("batch %d: %w", m.Seq, err)
			}
			s.Apply(m.Seq, b.Ops, ignore)
		}
	}
	return chaos.Stream{Worker: w.n, Next: s.Next(), Digest: s.Digest()}, true, nil
}

// replayIdle ends a round of a replay in which nothing comes for so long: workers
// drop what is not read fast enough, the end marker too.
const replayIdle = 500 * time.Millisecond

// replay asks a worker once for what it said from a batch on, and reports whether
// it came to the end.
func (c *cluster) replay(ctx context.Context, w *worker, from uint64) (round []kvwire.Message, ended bool, err error) {
	endpoint := fmt.Sprintf("tcp://%s:%d", workerAddress(w.n), replayPort)
	var conn *zmtp.Conn
	err = c.net.hub.do(func() (err error) {
		conn, err = zmtp.Dial(ctx, endpoint, zmtp.Options{Type: zmtp.DEALER, HandshakeTimeout: truthPatience})
		return err
	})
	if err != nil {
		return nil, false, err
	}
	defer conn.Close()
	if err := conn.Send(kvwire.ReplayRequest(from)...); err != nil {
		return nil, false, fmt.Errorf("ask %s for a replay: %w", endpoint, err)
	}
	for {
		if err := conn.SetRecvDeadline(time.Now().Add(replayIdle)); err != nil {
			return nil, false, err
		}
		frames, err := conn.Recv()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return round, false, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("replay of %s: %w", endpoint, err)
		}
		m, err := kvwire.Replay(frames)
		if err != nil {
			return nil, false, fmt.Errorf("replay of %s: %w", endpoint, err)
		}
		if m.End {
			return round, true, nil
		}
		round = append(round, m)
	}
}

func ignore(index.Change) {}
