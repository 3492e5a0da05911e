package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Clusters begin from copies of what others agreed on, so they are a tree. What
// counts for one is what those before it agreed on up to the copy, and then its
// own: its line. What was agreed on after the copy was made is lost to it, as is
// documented; and it may come back once, brought by those who held it.

// leaseBrought is no caller's operation: a lease of a cluster that ended.
const leaseBrought LeaseKind = "brought"

// never is when operations return of which nobody knows whether they were done.
const never = time.Duration(1) << 60

// leaseLine returns what happened in a cluster and those that it comes from, as
// far as it counts there. Of what may have been done only that is in it which
// somebody met.
func leaseLine(all []LeaseOp, c *LeaseCluster) []porcupine.Operation {
	l := line{ends: map[uint64]uint64{c.Cluster: 1<<63 - 1}, given: make(map[Lease]bool), gone: make(map[uint64]bool)}
	for i := range c.Past[:len(c.Past)-1] {
		l.ends[c.Past[i].Cluster] = c.Past[i+1].From
	}
	began := never
	for i := range all {
		if op := &all[i]; !op.Unknown && op.Cluster == c.Cluster {
			began = min(began, op.Call)
		}
	}
	known := make(map[string][]Lease) // by key, as anybody saw them
	for i := range all {
		if op := &all[i]; op.Lease != (Lease{}) {
			known[op.Key] = append(known[op.Key], op.Lease)
		}
	}
	for i := range all {
		switch op := &all[i]; {
		case op.Unknown, op.Kind == Seen, !l.counts(op):
		case op.Kind == Read && op.Cluster != c.Cluster && op.Return >= began:
			// of the old cluster, while the new one goes on
		default:
			l.done(op, known[op.Key])
		}
	}
	for i := range all {
		l.open(&all[i])
	}
	return l.ops
}

// returns is when it was done at the latest.
func (op *LeaseOp) returns() time.Duration {
	if op.Unknown {
		return never
	}
	return op.Return
}

// line is one that is put together.
type line struct {
	ends  map[uint64]uint64 // up to where clusters count
	ops   []porcupine.Operation
	met   []metLease
	given map[Lease]bool  // whose grant is in it
	gone  map[uint64]bool // holders with such a grant
}

// metLease is one that somebody met.
type metLease struct {
	key   string
	lease Lease
}

func (l *line) counts(op *LeaseOp) bool {
	end, counts := l.ends[op.Cluster]
	return counts && op.Index <= end
}

func (l *line) put(op LeaseOp) {
	// What returns when another is called goes on beside it.
	l.ops = append(l.ops, porcupine.Operation{ClientId: op.Client, Input: op, Call: 2 * int64(op.Call), Return: 2*int64(op.returns()) + 1})
}

func (l *line) meet(key string, x Lease) {
	if m := (metLease{key, x}); x != (Lease{}) && !slices.Contains(l.met, m) {
		l.met = append(l.met, m)
	}
}

// done puts an operation into the line whose end is known.
func (l *line) done(op *LeaseOp, known []Lease) {
	l.put(*op)
	l.meet(op.Key, op.Lease)
	for _, x := range known { // what it took the place of may have been seen elsewhere alone
		if op.OK && op.Expect != (Token{}) && x.Token == op.Expect {
			l.meet(op.Key, x)
		}
	}
	if op.OK && op.Kind == Acquire {
		l.given[op.Lease], l.gone[op.Gives] = true, true
	}
}

// open puts in what an operation may have done, or still do.
func (l *line) open(op *LeaseOp) {
	if op.Unknown && op.Kind == Revoke {
		l.put(*op)
	}
	if op.Kind != Acquire {
		return
	}
	for _, m := range l.met {
		if m.key != op.Key || m.lease.Holder != op.Gives || l.given[m.lease] || l.gone[op.Gives] {
			continue
		}
		may := *op
		may.Lease, may.Unknown, may.OK = m.lease, true, false
		if op.Unknown {
			l.put(may)
		}
		may.Kind, may.Expect = leaseBrought, Token{}
		l.put(may)
	}
}

// leaseModel is one workflow's lease.
func leaseModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
			at := make(map[string]int)
			for _, op := range history {
				key := op.Input.(LeaseOp).Key
				if _, known := at[key]; !known {
					at[key] = len(parts)
					parts = append(parts, nil)
				}
				parts[at[key]] = append(parts[at[key]], op)
			}
			return parts
		},
		Init: func() any { return held{} },
		Step: func(state, input, _ any) (bool, any) {
			now := state.(held)
			ok := now.step(input.(LeaseOp))
			return ok, now
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	}
}

// held is a lease as one register has it.
type held struct {
	lease Lease
	last  Token         // the last one given
	used  time.Duration // since when it has been idle, at the earliest
}

// step says whether an operation can come next, and does it.
func (now *held) step(op LeaseOp) bool {
	if now.ended(&op) && op.returns()-now.used >= LeaseTTL {
		now.lease = Lease{}
	}
	match := now.lease.Token == op.Expect
	switch {
	case op.Kind == Read:
		return now.lease == op.Lease
	case op.Unknown && (!match || op.Kind != Revoke && !now.last.Less(op.Lease.Token)):
		return true // and nothing came of it
	case !op.Unknown && !op.OK:
		return !match && now.lease == op.Lease
	case !match:
		return false
	}
	switch op.Kind {
	case Renew:
		now.used = op.Call
		return now.lease == op.Lease
	case Revoke:
		now.lease = Lease{}
	default:
		if !now.last.Less(op.Lease.Token) {
			return false
		}
		now.lease, now.last, now.used = op.Lease, op.Lease.Token, op.Call
	}
	return true
}

// ended reports whether an operation can be explained only if the lease that is held
// was taken back, as the leader does with one that was idle for its time.
func (now *held) ended(op *LeaseOp) bool {
	switch {
	case now.lease == Lease{}:
		return false
	case op.Kind == Read || !op.Unknown && !op.OK:
		return op.Lease == Lease{}
	}
	return op.Expect == Token{}
}

// byCluster counts the operations that were done in each cluster.
func byCluster(all []LeaseOp) (clusters []uint64, done map[uint64]int) {
	done = make(map[uint64]int)
	for i := range all {
		op := &all[i]
		if op.Unknown || op.Kind == Seen {
			continue
		}
		if done[op.Cluster]++; done[op.Cluster] == 1 {
			clusters = append(clusters, op.Cluster)
		}
	}
	slices.SortFunc(clusters, cmp.Compare)
	return clusters, done
}
