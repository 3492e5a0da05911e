package model

import (
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// Kind says what an Event tells.
type Kind uint8

const (
	// Admitted: a request got its KV blocks (again, after a preemption).
	Admitted Kind = iota
	// FirstToken: the prompt is computed and the first token is out. HBMTokens
	// and TierTokens are final.
	FirstToken
	// Tokens: Tokens more tokens came out, the last of them at At. The first
	// token of all is told by FirstToken only.
	Tokens
	// Finished: the last token is out and the blocks are released. Tokens is
	// the output's length.
	Finished
	// Preempted: the pool ran out, the request waits again and will be
	// recomputed.
	Preempted
	// Cancelled: a cancelled request's slot and blocks are free.
	Cancelled
	// Stored: blocks are on a tier, a run in prefix order.
	Stored
	// Removed: blocks left a tier.
	Removed
	// Cleared: all blocks left HBM at once.
	Cleared
	// Lost: a Reset ended the request.
	Lost
)

// Event is one thing that happened.
type Event struct {
	Kind Kind
	At   float64 // modelled microseconds
	ID   uint64  // of the request; Removed, Cleared and spilled blocks have none

	Tokens     int // Tokens, Finished
	HBMTokens  int // Admitted, FirstToken: prompt tokens found in HBM
	TierTokens int // Admitted, FirstToken: prompt tokens loaded from a lower tier

	// Stored, Removed. Blocks is only valid during the call. Stored in HBM, or
	// below by write-through, tells of request ID's blocks from its Keys[First]
	// on; they are told before the request's Finished or Cancelled. Group is 0,
	// or WindowGroup for blocks of a sliding window.
	Tier      kv.Tier
	Group     uint16
	First     int
	HasParent bool // Stored: Parent is the block before Blocks[0]
	Parent    kv.EngineHash
	Blocks    []kv.EngineHash

	// Stored, and only valid during the call: for each of Blocks a small number
	// that stands for its content. It is new where a request stores a block,
	// moves down the tiers with the block, and is used again once nothing told
	// so far needs it. So a driver that keeps what is in each block needs no
	// table: an array by these numbers does. WindowGroup has none.
	Contents []int32
}

// Sink receives events in the order in which things happened.
type Sink func(Event)

// change is a Stored or Removed that is told when the current iteration ends,
// as engines do.
type change struct {
	removed   bool
	hasParent bool
	ofRequest bool // its blocks are request id's from index first on
	parent    kv.EngineHash
	id        uint64
	first     int
	from, to  int // part of the list's hashes and contents
}

// changeList holds the changes of one lane. What can be told in one event is
// one change.
type changeList struct {
	changes  []change
	hashes   []kv.EngineHash
	contents []int32 // of each hash; of removed ones it means nothing
}

// lane is a list of changes: that of a tier, or of the sliding group in HBM.
type lane uint8

const (
	hbmLane    = lane(kv.HBM)
	windowLane = lane(kv.NumTiers)
	numLanes   = windowLane + 1
)

// journal keeps the changes of one iteration by lane. Lower tiers are told
// first, so that a block that moves down is never gone in between.
type journal struct {
	lanes   [numLanes]changeList
	pending bool
	numbers numbers
}

// stored notes keys[from:to] of a request, now in HBM. The caller appends
// their contents to the list that it returns.
func (j *journal) stored(id uint64, keys []kv.EngineHash, from, to int) *changeList {
	j.pending = true
	l := &j.lanes[hbmLane]
	parent, has := parentOf(keys, from)
	n := len(l.hashes)
	l.hashes = append(l.hashes, keys[from:to]...)
	l.changes = append(l.changes, change{hasParent: has, parent: parent, ofRequest: true, id: id, first: from, from: n, to: len(l.hashes)})
	return l
}

// storedOne notes keys[i] of a request, now in another lane.
func (j *journal) storedOne(n lane, id uint64, keys []kv.EngineHash, i int, content int32) {
	last := j.extend(n, keys[i], content)
	if last != nil && last.ofRequest && last.id == id && last.first+last.to-last.from == i {
		last.to++
		return
	}
	parent, has := parentOf(keys, i)
	j.begin(n, change{hasParent: has, parent: parent, ofRequest: true, id: id, first: i})
}

// spilled notes one block that came from the tier above. Blocks of a chain
// come deepest first, so a run is gathered in reverse.
func (j *journal) spilled(t kv.Tier, n *node) {
	last := j.extend(lane(t), n.hash, n.content)
	if last != nil && !last.removed && !last.ofRequest && last.hasParent && last.parent == n.hash {
		last.to++
		last.parent, last.hasParent = n.parent, n.hasParent
		return
	}
	j.begin(lane(t), change{parent: n.parent, hasParent: n.hasParent})
}

// removed notes one block that left a lane.
func (j *journal) removed(n lane, hash kv.EngineHash) {
	last := j.extend(n, hash, -1)
	if last != nil && last.removed {
		last.to++
		return
	}
	j.begin(n, change{removed: true})
}

// extend appends a hash to a lane and returns its last change, nil when there
// is none.
func (j *journal) extend(n lane, hash kv.EngineHash, content int32) *change {
	j.pending = true
	l := &j.lanes[n]
	l.hashes, l.contents = append(l.hashes, hash), append(l.contents, content)
	if len(l.changes) == 0 {
		return nil
	}
	return &l.changes[len(l.changes)-1]
}

// begin adds a change whose first hash is the lane's last.
func (j *journal) begin(n lane, c change) {
	l := &j.lanes[n]
	c.to = len(l.hashes)
	c.from = c.to - 1
	l.changes = append(l.changes, c)
}

// flush tells everything pending with time at.
func (j *journal) flush(at float64, sink Sink) {
	if !j.pending {
		return
	}
	j.pending = false
	for n := numLanes; n > 0; {
		n--
		l := &j.lanes[n]
		for i := range l.changes {
			l.tell(&l.changes[i], n, at, sink)
		}
		l.changes, l.hashes, l.contents = l.changes[:0], l.hashes[:0], l.contents[:0]
	}
	j.numbers.settle()
}

func (l *changeList) tell(c *change, n lane, at float64, sink Sink) {
	e := Event{Kind: Stored, At: at, Tier: kv.Tier(n), HasParent: c.hasParent, Parent: c.parent,
		Blocks: l.hashes[c.from:c.to], Contents: l.contents[c.from:c.to]}
	if n == windowLane {
		e.Tier, e.Group, e.Contents = kv.HBM, WindowGroup, nil
	}
	switch {
	case c.ofRequest:
		e.ID, e.First = c.id, c.first
	case c.removed:
		e.Kind, e.Contents = Removed, nil
	default:
		slices.Reverse(e.Blocks)
		slices.Reverse(e.Contents)
	}
	sink(e)
}

// numbers gives out the numbers of Event.Contents. One that is given back may
// still be told in the present iteration, so it waits for settle.
type numbers struct {
	next        int32
	free, given []int32
}

func (n *numbers) take() int32 {
	if last := len(n.free) - 1; last >= 0 {
		x := n.free[last]
		n.free = n.free[:last]
		return x
	}
	n.next++
	return n.next - 1
}

func (n *numbers) giveBack(x int32) { n.given = append(n.given, x) }

func (n *numbers) settle() {
	n.free = append(n.free, n.given...)
	n.given = n.given[:0]
}
