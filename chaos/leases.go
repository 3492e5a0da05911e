package chaos

import "time"

// LeaseKind is what an operation on a lease does.
type LeaseKind string

// The operations. All but Seen are linearizable; what is Seen is a replica's own
// table, which may lag.
const (
	Acquire LeaseKind = "acquire" // give it to Gives, if its token is Expect
	Renew   LeaseKind = "renew"   // the one granted by Expect
	Revoke  LeaseKind = "revoke"  // the one granted by Expect
	Read    LeaseKind = "read"    // as the leader has it
	Seen    LeaseKind = "seen"    // as a replica's table has it
)

// LeaseOp is one operation on a lease from its caller's side.
type LeaseOp struct {
	Client       int
	Key          string
	Kind         LeaseKind
	Call, Return time.Duration
	// Unknown: no answer came, so it may have been done, or may yet be. OK: it was
	// done; there is a lease, for one that reads.
	Unknown, OK bool
	Expect      Token // zero for a workflow without a lease
	// Gives is the holder that an Acquire brings, another one each time. Lease is
	// what was read, granted or renewed, or what stood against it.
	Gives uint64
	Lease Lease
	// Cluster and Index are where in which log it was done.
	Cluster, Index uint64
}

// Lease is a workflow's place, zero for none. Equal holders are equal places.
type Lease struct {
	Holder uint64
	Token  Token
}

// Token orders the grants of leases.
type Token struct{ Gen, Index uint64 }

// Less reports whether a token was given before another.
func (t Token) Less(o Token) bool { return t.Gen < o.Gen || t.Gen == o.Gen && t.Index < o.Index }

// LeaseCluster is where a cluster that agrees on leases comes from: those before
// it, each with how far its predecessor's log counts, and itself.
type LeaseCluster struct {
	Cluster uint64
	Past    []LeaseBegin
}

// LeaseBegin is where a cluster began: what was agreed on before, up to From.
type LeaseBegin struct{ Cluster, From uint64 }
