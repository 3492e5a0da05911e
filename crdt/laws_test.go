package crdt

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// TestReplicasAgree runs an engine, two replicas that read it and see
// different parts of what it says, and two that only hear of it, over a
// network that drops, duplicates and reorders. The engine restarts; batches
// lost to everybody are skipped; copies catch up from rings and snapshots at
// any moment. Wherever two replicas stand at one position of one boot with
// equal skips, their digests are equal. In the end all are where the log leads
// that is left, which is the engine's own if nothing was lost to everybody.
func TestReplicasAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		for range rapid.SampledFrom([]int{10, 60, 200}).Draw(t, "steps") {
			c.step()
			c.compare()
		}
		c.settle()
		c.compare()
		c.checkTruth()
	})
}

const owners, replicas = 2, 4

type cluster struct {
	t       *rapid.T
	counted bool
	boot    kv.Boot
	told    [][]kv.Op // by the engine, in this boot
	all     []*replica
	digests map[string]uint64 // by boot, position and skips
}

type replica struct {
	t     *rapid.T
	boot  kv.Boot
	log   *Log
	s     *Stream
	inbox []message
	x     shown
}

// message is a batch, or a skip in place of it.
type message struct {
	boot kv.Boot
	Entry
}

func newCluster(t *rapid.T) *cluster {
	c := &cluster{t: t, counted: rapid.Bool().Draw(t, "counted"), digests: map[string]uint64{}}
	limit := rapid.SampledFrom([]int{1, 1500, 1 << 20}).Draw(t, "ring bytes")
	for range replicas {
		r := &replica{t: t, log: NewLog(LogConfig{MaxRingBytes: limit, MaxPendingBytes: 3000})}
		r.open(0, c.counted)
		c.all = append(c.all, r)
	}
	return c
}

func (r *replica) open(boot kv.Boot, counted bool) {
	r.log.Close(StreamID{Boot: r.boot})
	r.boot = boot
	r.s = r.log.Open(StreamID{Boot: boot}, StreamConfig{Counted: counted})
	r.x = shown{r.t, map[index.Change]bool{}}
}

// take applies a message of the present boot.
func (r *replica) take(e Entry) Outcome {
	if e.Skipped {
		return r.s.Skip(e.From, e.To, r.x.emit)
	}
	return r.s.Apply(e.From, e.Ops, r.x.emit)
}

func (r *replica) restore(from *replica) {
	if err := r.s.Restore(snapshotOf(r.t, from.s)); err != nil {
		r.t.Fatalf("restore: %v", err)
	}
	r.x.on = presentIn(r.s)
}

func (r *replica) has(seq uint64) bool {
	_, waits := r.s.ahead.batches[seq]
	return waits || seq < r.s.next && !inRanges(r.s.skips, seq) ||
		slices.ContainsFunc(r.inbox, func(m message) bool { return !m.Skipped && m.From == seq })
}

func (c *cluster) pick(n int, what string) *replica {
	return c.all[rapid.IntRange(0, n-1).Draw(c.t, what)]
}

// gossip puts what owner r did into the others' inboxes, or loses it.
func (c *cluster) gossip(r *replica, e Entry) {
	for _, other := range c.all {
		if other != r && rapid.IntRange(0, 3).Draw(c.t, "lost") > 0 {
			other.inbox = append(other.inbox, message{c.boot, c.sent(e)})
		}
	}
}

// sent returns what a peer reads of an entry.
func (c *cluster) sent(e Entry) Entry {
	read, rest, err := ReadEntry(AppendEntry(nil, e), e.From)
	if err != nil || len(rest) > 0 {
		c.t.Fatalf("%+v on the wire: %v, %d bytes left", e, err, len(rest))
	}
	return read
}

func (c *cluster) step() {
	t := c.t
	switch k := rapid.IntRange(0, 40).Draw(t, "step"); {
	case k < 15:
		e := Entry{Range: Range{uint64(len(c.told)), uint64(len(c.told))}, Ops: rapid.SliceOfN(rapid.Custom(drawOp), 0, 3).Draw(t, "ops")}
		c.told = append(c.told, e.Ops)
		for _, r := range c.all[:owners] {
			if rapid.IntRange(0, 3).Draw(t, "seen") > 0 {
				r.take(e)
				c.gossip(r, e)
			}
		}
	case k < 31:
		if r := c.pick(replicas, "receiver"); len(r.inbox) > 0 {
			i := rapid.IntRange(0, len(r.inbox)-1).Draw(t, "message")
			r.take(r.inbox[i].Entry)
			if rapid.IntRange(0, 4).Draw(t, "once") > 0 {
				r.inbox = slices.Delete(r.inbox, i, i+1)
			}
		}
	case k < 34:
		r := c.pick(owners, "owner")
		seq := r.s.Next()
		if seq < uint64(len(c.told)) && !slices.ContainsFunc(c.all, func(r *replica) bool { return r.has(seq) }) {
			e := Entry{Range: Range{seq, seq}, Skipped: true}
			r.take(e)
			c.gossip(r, e)
		}
	case k < 37:
		if from, to := c.pick(replicas, "from"), c.pick(replicas, "to"); from.s.Next() >= to.s.Next() {
			to.restore(from)
		}
	case k < 40:
		c.catchUp(c.pick(replicas, "from"), c.pick(replicas, "to"))
	default:
		c.boot++
		c.told = nil
		for _, r := range c.all {
			r.inbox = nil
			r.open(c.boot, c.counted)
		}
	}
}

// catchUp gives to what from's ring has for it.
func (c *cluster) catchUp(from, to *replica) (ok bool) {
	entries, ok := from.s.From(to.s.Next())
	if !ok || from == to {
		return false
	}
	for e := range entries {
		if !e.Skipped && (e.From != e.To || cmp.Diff(e.Ops, c.told[e.From]) != "") {
			c.t.Fatalf("the ring's batch %d isn't what the engine told", e.From)
		}
		to.take(c.sent(e))
	}
	if to.s.Next() < from.s.Next() {
		c.t.Fatalf("caught up from a ring to %d of %d", to.s.Next(), from.s.Next())
	}
	return true
}

func (c *cluster) compare() {
	for i, r := range c.all {
		at := fmt.Sprint(r.boot, r.s.Next(), r.s.Skips())
		if d, seen := c.digests[at]; seen && d != r.s.Digest() {
			c.t.Fatalf("replica %d at %s: digest %x, another had %x", i, at, r.s.Digest(), d)
		}
		c.digests[at] = r.s.Digest()
	}
}

// settle is the network healed: all catch up with whoever is ahead, until what
// waits brings nobody past the others any more.
func (c *cluster) settle() {
	for apart := true; apart; {
		apart = false
		best := slices.MaxFunc(c.all, func(a, b *replica) int { return int(a.s.Next()) - int(b.s.Next()) })
		for _, r := range c.all {
			if r.s.Next() != best.s.Next() {
				apart = true
				if !c.catchUp(best, r) {
					r.restore(best)
				}
			}
		}
	}
}

func (c *cluster) checkTruth() {
	s := c.all[0].s
	n := &naive{counted: c.counted, blocks: map[node]*naiveBlock{}}
	for i, ops := range c.told[:s.Next()] {
		if !inRanges(s.Skips(), uint64(i)) {
			n.apply(ops)
		}
	}
	for i, r := range c.all {
		if r.s.Next() != s.Next() || r.s.Digest() != s.Digest() || !slices.Equal(r.s.Skips(), s.Skips()) {
			c.t.Fatalf("replica %d is at %d with skips %v, replica 0 at %d with %v", i, r.s.Next(), r.s.Skips(), s.Next(), s.Skips())
		}
		r.s.base.check(c.t)
		if d := cmp.Diff(n.present(), r.x.on); d != "" {
			c.t.Fatalf("replica %d shows (-want +got):\n%s", i, d)
		}
	}
}
