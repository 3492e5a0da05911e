package emulator

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/engine/zmtp"
)

// Bounds of the replay ring: vLLM's default in batches, and one in bytes so
// that a fleet of emulators fits in a laptop.
const (
	replayBatches  = 10_000
	replayMaxBytes = 64 << 20
)

// feed publishes the model's cache events as vLLM does: one batch per engine
// iteration, live on a PUB socket and again, from a ring, on a ROUTER socket.
// The owner goroutine calls it; only the ring is shared with replays.
type feed struct {
	form     EventForm
	topic    []byte
	pub      *zmtp.Pub
	router   *zmtp.Router
	contents *contents

	at     float64 // of the batch in the making
	n      int
	events []byte // the n events of it, encoded
	tokens []uint32

	ring ring
}

func newFeed(cfg Config) (*feed, error) {
	f := &feed{form: cfg.EventForm, topic: []byte(cfg.Topic), contents: newContents(cfg.BlockTokens)}
	var err error
	if f.pub, err = zmtp.ListenPub(cfg.EventsAddr, zmtp.PubOptions{}); err != nil {
		return nil, fmt.Errorf("emulated worker %s: listen for event subscribers on %s: %w", cfg.Name, cfg.EventsAddr, err)
	}
	if f.router, err = zmtp.ListenRouter(cfg.ReplayAddr, zmtp.RouterOptions{}, f.replay); err != nil {
		f.pub.Close()
		return nil, fmt.Errorf("emulated worker %s: listen for replay requests on %s: %w", cfg.Name, cfg.ReplayAddr, err)
	}
	return f, nil
}

func (f *feed) close() {
	f.router.Close()
	f.pub.Close()
}

// tell adds a cache event to the batch of its iteration. s is the request it
// names; spilled blocks and removals have none.
func (f *feed) tell(e model.Event, s *sequence) {
	if f.n > 0 && e.At != f.at {
		f.flush()
	}
	f.at = e.At
	f.n++
	medium := media[e.Tier]
	switch e.Kind {
	case model.Stored:
		f.events = f.form.appendStored(f.events, f.stored(e, s, medium))
	case model.Removed:
		f.events = f.form.appendRemoved(f.events, e.Blocks, medium)
		for _, h := range e.Blocks {
			f.contents.remove(h)
		}
	case model.Cleared:
		f.events = f.form.appendCleared(f.events)
	}
}

func (f *feed) stored(e model.Event, s *sequence, medium string) stored {
	c := f.contents
	out := stored{hashes: e.Blocks, hasParent: e.HasParent, parent: e.Parent, blockTokens: c.blockTokens, medium: medium}
	if s != nil {
		bt := c.blockTokens
		out.tokens = s.tokens[e.First*bt : (e.First+len(e.Blocks))*bt]
		for i, h := range e.Blocks {
			salt := ""
			if e.First+i == 0 {
				salt = s.salt
				out.salt = salt
			}
			c.add(h, out.tokens[i*bt:(i+1)*bt], salt)
		}
		return out
	}
	f.tokens = f.tokens[:0]
	for _, h := range e.Blocks {
		f.tokens = c.copyTo(f.tokens, h)
	}
	out.tokens = f.tokens
	out.salt = c.salts[e.Blocks[0]]
	return out
}

// flush publishes the batch in the making, if any.
func (f *feed) flush() {
	if f.n == 0 {
		return
	}
	now := float64(time.Now().UnixNano()) / 1e9
	payload := appendBatch(make([]byte, 0, len(f.events)+16), now, f.n, f.events, 0)
	f.n, f.events = 0, f.events[:0]
	f.contents.sweep()
	seq := f.ring.add(payload)
	f.pub.Send(f.topic, seqFrame(seq), payload)
}

// endSeq marks the end of a replay.
const endSeq = ^uint64(0)

// replay answers one replay request in the form of vLLM 0.25: an empty frame,
// topic, number, payload for each batch, then the end marker. Like vLLM it
// silently leaves out what the ring no longer holds and what the client does
// not drain.
func (f *feed) replay(_ []byte, frames [][]byte, reply func(frames ...[]byte) error) {
	if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
		return
	}
	seq, payloads := f.ring.from(binary.BigEndian.Uint64(frames[1]))
	for i, p := range payloads {
		_ = reply(nil, f.topic, seqFrame(seq+uint64(i)), p)
	}
	_ = reply(nil, nil, seqFrame(endSeq), nil)
}

func seqFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// ring holds the newest batches. It is safe for concurrent use.
type ring struct {
	mu       sync.Mutex
	payloads [][]byte // payloads[i] has number first+i
	first    uint64
	bytes    int
}

// add numbers a batch and keeps it.
func (r *ring) add(payload []byte) (seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq = r.first + uint64(len(r.payloads))
	r.payloads = append(r.payloads, payload)
	r.bytes += len(payload)
	for len(r.payloads) > replayBatches || (r.bytes > replayMaxBytes && len(r.payloads) > 1) {
		r.bytes -= len(r.payloads[0])
		r.payloads[0] = nil
		r.payloads = r.payloads[1:]
		r.first++
	}
	return seq
}

// from returns the batches that it holds from number start on, and the number
// of the first one.
func (r *ring) from(start uint64) (seq uint64, payloads [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq = max(start, r.first)
	skip := min(seq-r.first, uint64(len(r.payloads)))
	return seq, append([][]byte(nil), r.payloads[skip:]...)
}
