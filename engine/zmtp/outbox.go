package zmtp

import (
	"bufio"
	"io"
	"sync"
	"sync/atomic"
)

// outbox is the bounded queue in front of one peer's socket. Any goroutine
// puts; one goroutine runs it. It takes the queue whole and flushes when
// nothing is left, so that a burst costs few system calls and a single message
// no delay.
type outbox struct {
	limit int64        // messages
	held  atomic.Int64 // messages put and not yet written

	mu     sync.Mutex
	queue  [][]byte
	closed bool
	wake   chan struct{} // holds a token when queue or closed changed
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: int64(limit), wake: make(chan struct{}, 1)}
}

// put queues an encoded message. It reports false, and drops it, when the
// queue is full. Commands are urgent: the limit doesn't hold for them.
func (o *outbox) put(encoded []byte, urgent bool) bool {
	if !urgent && o.held.Load() >= o.limit {
		return false
	}
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return false
	}
	o.held.Add(1)
	o.queue = append(o.queue, encoded)
	o.mu.Unlock()
	o.signal()
	return true
}

// close makes run return; what is still queued is lost.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes what is put to w until close, or an error of w.
func (o *outbox) run(w io.Writer) error {
	buf := bufio.NewWriterSize(w, 64<<10)
	var batch [][]byte
	for {
		o.mu.Lock()
		batch, o.queue = o.queue, batch[:0]
		closed := o.closed
		o.mu.Unlock()
		if closed {
			return nil
		}
		if len(batch) == 0 {
			if err := buf.Flush(); err != nil {
				return err
			}
			<-o.wake
			continue
		}
		for i, m := range batch {
			batch[i] = nil
			if _, err := buf.Write(m); err != nil {
				return err
			}
			o.held.Add(-1)
		}
	}
}
