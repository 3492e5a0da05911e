package engine

import (
	"sync"
	"sync/atomic"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/zmtp"
)

// inbox reads live messages off a connection as fast as they come, so that the
// engine never has to drop one, of which we'd learn late or not at all. What
// doesn't fit its bounds is dropped here, where it is noticed.
type inbox struct {
	messages   chan kvwire.Message // closed when the connection broke
	err        error               // why; to be read after the close
	overflowed atomic.Bool         // something was dropped

	f    *Feed
	conn *zmtp.Conn
	held atomic.Int64 // payload bytes in messages
	wg   sync.WaitGroup
}

func newInbox(conn *zmtp.Conn, f *Feed) *inbox {
	in := &inbox{messages: make(chan kvwire.Message, f.cfg.BufferMessages), f: f, conn: conn}
	in.wg.Go(in.read)
	return in
}

func (in *inbox) read() {
	defer close(in.messages)
	warned := false
	for {
		frames, err := in.conn.Recv()
		if err != nil {
			in.err = err
			return
		}
		m, err := kvwire.Live(frames)
		if err != nil {
			in.f.refused.Add(1)
			if !warned { // once a connection: a stranger may send many
				warned = true
				in.f.cfg.Log.Warn("message on the KV event endpoint is no event batch", "events", in.f.events, "err", err)
			}
			continue
		}
		in.f.messages.Add(1)
		in.put(m)
	}
}

func (in *inbox) put(m kvwire.Message) {
	size := int64(len(m.Payload))
	if in.held.Add(size) <= int64(in.f.cfg.BufferBytes) {
		select {
		case in.messages <- m:
			return
		default:
		}
	}
	in.held.Add(-size)
	in.f.overflows.Add(1)
	in.overflowed.Store(true)
}

// took says that a message was taken out.
func (in *inbox) took(m kvwire.Message) { in.held.Add(-int64(len(m.Payload))) }

// close ends the connection and waits for the reader.
func (in *inbox) close() {
	in.conn.Close()
	in.wg.Wait()
}
