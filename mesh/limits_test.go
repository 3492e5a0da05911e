package mesh

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// What waits to be sent to all peers together is bounded in bytes, and in frames
// for each; what has no room is dropped, counted, and the core is told.
func TestQueuesAreBounded(t *testing.T) {
	n, err := New(Config{}, Deps{Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n.cfg.MaxQueueBytes = 1000
	lanes := make([]*lane, 3)
	for i := range lanes {
		lanes[i] = &lane{name: fmt.Sprint("r", i), queues: [2]chan []byte{make(chan []byte, 20), make(chan []byte, 20)}}
	}
	put := func(l *lane, class core.Class, bytes int) (room bool) {
		before := n.dropped.Load()
		n.enqueue(0, l, core.Message{Class: class, Frame: make([]byte, bytes)})
		return n.dropped.Load() == before
	}
	for i := range 9 {
		if !put(lanes[i%3], core.Live, 100) {
			t.Errorf("frame %d has no room", i)
		}
	}
	if put(lanes[0], core.Sync, 101) || n.queued.Load() != 900 {
		t.Errorf("a frame over the limit of bytes waits: %d do", n.queued.Load())
	}
	for i := range 20 {
		if room := put(lanes[1], core.Sync, 1); !room {
			t.Errorf("small frame %d has no room", i)
		}
	}
	if put(lanes[1], core.Sync, 1) {
		t.Error("a frame over the limit of a lane's frames waits")
	}
	if put(&lane{name: "r3"}, core.Live, 1); n.queued.Load() != 920 {
		t.Errorf("%d bytes wait, those for one that is not connected included", n.queued.Load())
	}
}

// Addresses where replicas may be are bounded; those of members stay, and of the
// others those that were spoken of last.
func TestAddressesAreBounded(t *testing.T) {
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7400)
	}
	b := newAddressBook(4)
	b.here(at(1), "member")
	for i := 2; i < 20; i++ {
		b.seed(at(i), clock.Instant(i))
		b.seed(at(2), clock.Instant(i)) // a name that leads there still
	}
	if n := b.size(); n != 4 {
		t.Errorf("%d addresses", n)
	}
	for _, i := range []int{1, 2, 18, 19} {
		if b.at[at(i)] == nil {
			t.Errorf("address %d is forgotten", i)
		}
	}
}
