package chaos

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// leasesLinear: what callers saw of the leases is what one register for each key
// would have shown them, and its tokens grow.
func leasesLinear() Checker {
	const name = "leases"
	return Checker{name, "the history of each lease is linearizable and its tokens grow", func(_ *Scenario, h *History) []Violation {
		f := findings{name: name}
		var ops []porcupine.Operation
		for i, op := range h.Leases {
			ret := op.Return
			if op.Unknown { // it may take effect at any time from its call on
				ret = h.End + time.Second
			}
			ops = append(ops, porcupine.Operation{ClientId: i, Input: op, Output: op, Call: int64(op.Call), Return: int64(ret)})
		}
		switch porcupine.CheckOperationsTimeout(leaseModel(), ops, leaseCheckTime) {
		case porcupine.Illegal:
			f.add(h.End, "no order of the %d operations on leases explains what their callers saw", len(ops))
		case porcupine.Unknown:
			f.add(h.End, "the history of %d operations on leases could not be judged in %v", len(ops), leaseCheckTime)
		}
		return f.all
	}}
}

const leaseCheckTime = 20 * time.Second

// held is a lease as its register has it; the zero value is nobody's.
type held struct {
	holder     int
	gen, index uint64
	taken      bool
}

func (a held) older(gen, index uint64) bool {
	return cmp.Or(cmp.Compare(a.gen, gen), cmp.Compare(a.index, index)) < 0
}

// leaseModel is one lease as a register: an operation that changed it brings a
// greater token, and one that reads it sees the present one.
func leaseModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			by := make(map[string][]porcupine.Operation)
			for _, op := range history {
				key := op.Input.(LeaseOp).Key
				by[key] = append(by[key], op)
			}
			var out [][]porcupine.Operation
			for _, ops := range by { // order-free: each by itself
				out = append(out, ops)
			}
			return out
		},
		Init: func() any { return held{} },
		Step: func(state, input, _ any) (bool, any) {
			return leaseStep(state.(held), input.(LeaseOp))
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// leaseStep says whether an operation can follow a state, and what it leaves.
func leaseStep(s held, op LeaseOp) (bool, held) {
	if op.Unknown && op.Index == 0 { // its token was never seen: nobody can have met its effect
		return true, s
	}
	after := held{op.Holder, op.Gen, op.Index, true}
	switch op.Kind {
	case "acquire", "renew":
		switch {
		case op.OK:
			return s.older(op.Gen, op.Index) && (op.Kind == "acquire" || s.taken), after
		default: // refused: it saw who holds it
			return s == after || !op.Unknown && op.Index == 0, s
		}
	case "revoke":
		if !op.OK {
			return true, s
		}
		return s.taken, held{gen: s.gen, index: s.index}
	case "read":
		if op.OK {
			return s == after, s
		}
		return !s.taken, s
	}
	return false, s
}

// tablesEqual: soon after the faults every live replica's own table of leases is
// the same.
func tablesEqual() Checker {
	const name = "tables"
	return Checker{name, "all replicas' tables of leases are equal 2 s after the last fault", func(s *Scenario, h *History) []Violation {
		f := findings{name: name}
		for _, round := range rounds(h) {
			if round[0].At < s.Last()+tablesWithin {
				continue
			}
			at := make(map[uint64]uint64) // digest by index
			for _, x := range round {
				if d, ok := at[x.Applied]; ok && d != x.Leases {
					f.add(x.At, "replica %d has another table of leases at index %d than others", x.Replica, x.Applied)
				}
				at[x.Applied] = x.Leases
			}
			f.compareApplied(h, round)
		}
		return f.all
	}}
}

const tablesWithin = 2 * time.Second

// compareApplied looks for a replica that has not applied what another one had
// two seconds before. What was agreed by those who have all died since may be
// lost, so that another log has begun.
func (f *findings) compareApplied(h *History, round []*Sample) {
	at := round[0].At
	i := slices.IndexFunc(h.Samples, func(x Sample) bool {
		return x.Live && slices.ContainsFunc(round, func(now *Sample) bool { return now.Name == x.Name })
	})
	since := h.Samples[i].At // round's own samples are among them
	var most uint64
	for i := range h.Samples {
		if x := &h.Samples[i]; x.Live && x.At >= since && x.At <= at-tablesWithin {
			most = max(most, x.Applied)
		}
	}
	if i := slices.IndexFunc(round, func(x *Sample) bool { return x.Applied < most }); i >= 0 {
		f.add(at, "replica %d is at index %d of the leases, another one was at %d two seconds before", round[i].Replica, round[i].Applied, most)
	}
}
