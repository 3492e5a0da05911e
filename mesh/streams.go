package mesh

import (
	"fmt"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// HeldStream is what a replica holds of one engine's log, as the admin API shows
// it. Two replicas that are at the same batch of the same boot with the same
// skips have the same digest; so have equal marks.
type HeldStream struct {
	Target string `json:"target"`
	Worker string `json:"worker"` // the target's, as /workers names it
	Source uint8  `json:"source"` // 0: the engine's own cache
	Boot   string `json:"boot"`
	// Current says that no later boot of the target is known.
	Current bool   `json:"current"`
	Next    uint64 `json:"next_batch"`
	Skips   string `json:"skips"` // a hash of what was lost to all replicas; 0: nothing was
	Digest  string `json:"digest"`
	// Truncated says that blocks were let go for want of memory, so that the
	// digest means nothing.
	Truncated bool       `json:"truncated"`
	Marks     []HeldMark `json:"marks"`
}

// HeldMark is what a log was at one position.
type HeldMark struct {
	Next   uint64 `json:"next_batch"` // the first batch after it
	Skips  string `json:"skips"`
	Digest string `json:"digest"`
}

// Streams returns what is held of all engines' logs, in their order.
func (n *Node) Streams() []HeldStream {
	all := []HeldStream{}
	if n.alone() {
		return all
	}
	n.Do(func(_ clock.Instant, c *core.Core) {
		for id, s := range c.Log().All() {
			boot, known := c.Boot(id.Target)
			all = append(all, heldStream(id, s, !known || boot == id.Boot))
		}
	})
	return all
}

func heldStream(id crdt.StreamID, s *crdt.Stream, current bool) HeldStream {
	h := HeldStream{
		Target: id.Target.String(), Worker: id.Target.Worker.String(), Source: uint8(id.Source), Boot: hex(uint64(id.Boot)),
		Current: current, Next: s.Next(), Skips: hex(s.SkipsHash()), Digest: hex(s.Digest()),
		Truncated: s.Truncated() != 0, Marks: []HeldMark{},
	}
	for _, m := range s.Marks() {
		h.Marks = append(h.Marks, HeldMark{m.W + 1, hex(m.Skips), hex(m.Digest)})
	}
	return h
}

func hex(v uint64) string { return fmt.Sprintf("%016x", v) }
