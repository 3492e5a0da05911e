package lease

import (
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/kv"
)

// Key names a workflow within the cluster that agrees: a hash of the model, the
// tenant and the workflow's own name.
type Key [16]byte

// Token orders the grants of leases: each grant has a greater one than all
// before it. Whoever acts on a lease shows its token, and whoever has seen a
// greater one refuses. The zero Token is that of no lease.
type Token struct {
	Gen   uint64 // the generation of the cluster
	Index uint64 // where in its log the grant stands
}

// Less reports whether t was granted before o.
func (t Token) Less(o Token) bool {
	return t.Gen < o.Gen || t.Gen == o.Gen && t.Index < o.Index
}

// Holder is where a workflow lives: a target in one of its lives. A lease is
// void once another boot of the target is current.
type Holder struct {
	Target kv.Target
	Boot   kv.Boot
}

// Lease is a workflow's place.
type Lease struct {
	Key    Key
	Holder Holder
	// Owner is a hash of the API key that the workflow came with; 0 without one.
	Owner uint64
	Token Token
	// Used is the place in the log of the last grant or renewal. It orders leases
	// by how long they have been idle, and says nothing of time.
	Used uint64
	// Born is the grant that a lease goes back to which was brought from a cluster
	// that ended; zero of one that was granted as its Token says.
	Born Birth
}

// Origin is an incarnation of a replica.
type Origin struct {
	Name string // unique to the process
	Inc  uint64
}

// Kind is what a command does.
type Kind uint8

// The kinds of commands.
const (
	// Acquire gives Key to Holder if its lease's token is Expect: zero for a
	// workflow that has none. So of two replicas that place a workflow at once the
	// first in the log wins, and moving it needs to know where it is.
	Acquire Kind = iota + 1
	// Renew says that the lease granted by Expect was used.
	Renew
	// Revoke ends the lease granted by Expect; if From is not 0, only if it was not
	// used after that place in the log.
	Revoke
	// Fence kills Origin: nothing it proposes counts any more.
	Fence
	// Checkpoint says up to where origins' promises are settled, and how far
	// streams were.
	Checkpoint
	// Generation begins generation Gen, if it is a later one, of Cluster, from what
	// was agreed up to From.
	Generation
	// Bring gives Key to Holder, as Cluster did with the token Expect, in a lease
	// that came here from a cluster that ended: if the workflow has no lease, and it
	// is not known here what Cluster came to up to Expect.
	Bring
	// Ended says that of Cluster all is known that it came to up to Expect. It
	// follows what was brought, in the same proposal, so that a lease is brought
	// once, whoever else has a copy of it.
	Ended
	numKinds
)

// Command is one thing to agree on; which fields count depends on its kind.
type Command struct {
	Kind   Kind
	Key    Key
	Expect Token
	Holder Holder
	Owner  uint64
	Origin Origin
	Gen    uint64
	// Cluster is the one that begins, or that granted what is brought. From is where in the log a
	// generation's beginning is, 0 is where the command stands; or up to where uses
	// of what is revoked don't count.
	Cluster Cluster
	From    uint64
	Lows    []Low
	Marks   []StreamMark
}

// Low says that an incarnation's promises below Ticket are settled: those that
// others still hold are gone.
type Low struct {
	Origin Origin
	Ticket uint64
}

// StreamMark is how far a stream was at the leader, so that whoever was led
// elsewhere by the same log sees it.
type StreamMark struct {
	Stream crdt.StreamID
	Mark   crdt.Mark
}

// Proposal is what a replica asks to be agreed on, as an entry of the log. Of an
// incarnation's proposals only those with a greater number than all before
// count, so that one sent twice does nothing the second time. Number 0 is the
// leader's own: it is not sent, and always counts.
type Proposal struct {
	From     Origin
	No       uint64
	Commands []Command
}
