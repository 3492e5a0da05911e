package emulator

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/engine/zmtp"
)

// Bounds of the replay ring: the engines' default in batches, and one in bytes so
// that a fleet of emulators fits in a laptop.
const (
	replayBatches  = 10_000
	replayMaxBytes = 64 << 20
)

// feed publishes the model's cache events as engines do: one batch per engine
// iteration, live on a PUB socket and again, from a ring, on a ROUTER socket.
// The owner goroutine calls it; only the ring is shared with replays. faults.go
// has what goes wrong on purpose.
type feed struct {
	dialect                *dialect
	form                   EventForm
	topic                  []byte
	eventsAddr, replayAddr string // as bound
	pub                    *zmtp.Pub
	router                 *zmtp.Router
	contents               *contents
	window                 int // tokens of the model's sliding window, if it has one

	at     float64 // of the batch in the making
	n      int
	events []byte // the n events of it, encoded
	tokens []uint32

	ring   ring
	faults faults
}

func newFeed(cfg Config, d *dialect) (*feed, error) {
	f := &feed{
		dialect: d, form: cfg.EventForm, topic: []byte(cfg.Topic), contents: newContents(cfg.BlockTokens), window: cfg.Preset.WindowTokens, faults: newFaults(cfg),
	}
	if err := f.listen(cfg.EventsAddr, cfg.ReplayAddr); err != nil {
		return nil, fmt.Errorf("emulated worker %s: %w", cfg.Name, err)
	}
	f.eventsAddr, f.replayAddr = f.pub.Addr().String(), f.router.Addr().String()
	f.begin()
	return f, nil
}

// listen opens the sockets.
func (f *feed) listen(eventsAddr, replayAddr string) error {
	pub, err := zmtp.ListenPub(eventsAddr, zmtp.PubOptions{})
	if err != nil {
		return fmt.Errorf("listen for event subscribers on %s: %w", eventsAddr, err)
	}
	router, err := zmtp.ListenRouter(replayAddr, zmtp.RouterOptions{}, f.replay)
	if err != nil {
		pub.Close()
		return fmt.Errorf("listen for replay requests on %s: %w", replayAddr, err)
	}
	f.pub, f.router = pub, router
	return nil
}

// begin starts the first batch of a life.
func (f *feed) begin() {
	if f.dialect.clearsAtStart {
		f.n, f.events = 1, f.form.appendCleared(f.events)
	}
}

// restart hangs up on everybody and starts over on the same ports. Batches not
// published yet are lost. After an error nothing is published any more.
func (f *feed) restart() error {
	f.close()
	f.n, f.events = 0, f.events[:0]
	f.contents = newContents(f.contents.blockTokens)
	f.ring.clear()
	f.faults.late, f.faults.mute = nil, false
	if err := f.listen(f.eventsAddr, f.replayAddr); err != nil {
		return err
	}
	f.begin()
	return nil
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
	if e.Group != 0 && !f.dialect.tellsGroups {
		return
	}
	f.at = e.At
	f.n++
	medium := f.dialect.media[e.Tier]
	switch e.Kind {
	case model.Stored:
		f.events = f.dialect.stored(f.events, f.form, f.stored(e, s, medium))
	case model.Removed:
		f.events = f.dialect.removed(f.events, f.form, e.Blocks, medium, e.Group)
	case model.Cleared:
		f.events = f.form.appendCleared(f.events)
	}
}

func (f *feed) stored(e model.Event, s *sequence, medium string) stored {
	c, bt := f.contents, f.contents.blockTokens
	out := stored{hashes: e.Blocks, hasParent: e.HasParent, parent: e.Parent, blockTokens: bt, medium: medium,
		group: e.Group, window: f.window}
	if s != nil {
		from := e.First * bt
		out.tokens, out.salt = s.tokens[from:from+len(e.Blocks)*bt], s.salt
		if len(s.media) > 0 {
			for i := range e.Blocks {
				out.media = append(out.media, s.mediaIn(from+i*bt, from+(i+1)*bt))
			}
		}
		for i, n := range e.Contents {
			var media []mediaItem
			if out.media != nil {
				media = out.media[i]
			}
			c.set(n, out.tokens[i*bt:(i+1)*bt], s.salt, media)
		}
		return out
	}
	f.tokens = f.tokens[:0]
	for _, n := range e.Contents {
		f.tokens = append(f.tokens, c.of(n)...)
		if len(c.media) > 0 {
			out.media = append(out.media, c.media[n])
		}
	}
	out.tokens, out.salt = f.tokens, c.salts[e.Contents[0]]
	return out
}

// flush ends the batch in the making, if any, and publishes it, at once or
// when it is due.
func (f *feed) flush() {
	if f.n == 0 {
		return
	}
	now := float64(time.Now().UnixNano()) / 1e9
	payload := appendBatch(make([]byte, 0, len(f.events)+16), now, f.n, f.events, 0)
	f.n, f.events = 0, f.events[:0]
	if !f.faults.hold(payload) {
		f.publish(payload)
	}
}

// publish numbers a batch, keeps it for replays and sends it.
func (f *feed) publish(payload []byte) {
	if f.faults.mute {
		f.ring.add(nil)
		return
	}
	seq := f.ring.add(payload)
	if !f.faults.lose() {
		f.pub.Send(f.topic, seqFrame(seq), payload)
	}
}

// endSeq marks the end of a replay.
const endSeq = ^uint64(0)

// replay answers one replay request: an empty frame, from vLLM 0.25 on the
// topic, number, payload for each batch, then the end marker. Like the engines
// it silently leaves out what the ring no longer holds and what the client does
// not drain; and what was lost for good.
func (f *feed) replay(_ []byte, frames [][]byte, reply func(frames ...[]byte) error) {
	if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
		return
	}
	seq, payloads := f.ring.from(binary.BigEndian.Uint64(frames[1]))
	if !f.dialect.replaysTopic {
		for i, p := range payloads {
			if p != nil {
				_ = reply(nil, seqFrame(seq+uint64(i)), p)
			}
		}
		_ = reply(nil, seqFrame(endSeq), nil)
		return
	}
	for i, p := range payloads {
		if p != nil {
			_ = reply(nil, f.topic, seqFrame(seq+uint64(i)), p)
		}
	}
	_ = reply(nil, nil, seqFrame(endSeq), nil)
}

func seqFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// ring holds the newest batches. It is safe for concurrent use.
type ring struct {
	mu       sync.Mutex
	payloads [][]byte // payloads[i] has number first+i; nil: lost for good
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

// clear forgets everything; the next batch has number 0.
func (r *ring) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.payloads, r.first, r.bytes = nil, 0, 0
}
