package chaos

import (
	"slices"
	"testing"
	"time"
)

// judged is what the checker says of operations in the clusters 7 and, begun from a
// copy of it up to index 2, 8.
func judged(ops ...LeaseOp) []Violation {
	h := &History{Leases: ops, Clusters: []LeaseCluster{{7, []LeaseBegin{{Cluster: 7}}}, {8, []LeaseBegin{{Cluster: 7}, {8, 2}}}}}
	return leasesLinear().Check(new(Scenario), h)
}

func acquired(at int64, key string, gives uint64, expect, token Token, cluster uint64) LeaseOp {
	return LeaseOp{Key: key, Kind: Acquire, Call: time.Duration(at) * second, Return: time.Duration(at) * second, OK: true, Gives: gives, Expect: expect, Lease: Lease{gives, token}, Cluster: cluster, Index: token.Index}
}

func read(at int64, key string, l Lease, cluster, index uint64) LeaseOp {
	return LeaseOp{Key: key, Kind: Read, Call: time.Duration(at) * second, Return: time.Duration(at) * second, OK: l != Lease{}, Lease: l, Cluster: cluster, Index: index}
}

// unknown makes an operation one whose answer never came.
func unknown(op LeaseOp) LeaseOp {
	op.Unknown, op.OK, op.Lease, op.Cluster, op.Index = true, false, Lease{}, 0, 0
	return op
}

// An operation whose answer never came may have been done, at any time since, or
// not at all.
func TestUnknownLeasesStayOpen(t *testing.T) {
	first := acquired(1, "k", 11, Token{}, Token{1, 1}, 7)
	moved := unknown(acquired(2, "k", 12, Token{1, 1}, Token{}, 7))
	revoked := LeaseOp{Key: "k", Kind: Revoke, Call: 2 * second, Unknown: true, Expect: Token{1, 1}}
	for what, c := range map[string]struct {
		ops  []LeaseOp
		fine bool
	}{
		"done in time":     {[]LeaseOp{first, moved, read(3, "k", Lease{12, Token{1, 2}}, 7, 2)}, true},
		"done late":        {[]LeaseOp{first, moved, read(3, "k", Lease{11, Token{1, 1}}, 7, 1), read(4, "k", Lease{12, Token{1, 2}}, 7, 2)}, true},
		"undone":           {[]LeaseOp{first, moved, read(3, "k", Lease{12, Token{1, 2}}, 7, 2), read(4, "k", Lease{11, Token{1, 1}}, 7, 3)}, false},
		"done before":      {[]LeaseOp{first, read(1, "k", Lease{12, Token{1, 2}}, 7, 2), moved}, false},
		"revoked, or not":  {[]LeaseOp{first, revoked, read(3, "k", Lease{11, Token{1, 1}}, 7, 1), read(4, "k", Lease{}, 7, 2)}, true},
		"revoked and back": {[]LeaseOp{first, revoked, read(3, "k", Lease{}, 7, 2), read(4, "k", Lease{11, Token{1, 1}}, 7, 2)}, false},
	} {
		if found := judged(c.ops...); (len(found) == 0) != c.fine {
			t.Errorf("%s: %v", what, found)
		}
	}
}

// A cluster that begins from a copy of another has what the copy has; what came
// later is lost to it, and may be brought once.
func TestLeasesOfAClusterThatBeganFromACopy(t *testing.T) {
	kept := acquired(1, "k", 11, Token{}, Token{1, 1}, 7)
	late := acquired(2, "k", 12, Token{1, 1}, Token{1, 5}, 7) // after the copy was made
	end := read(2, "k", Lease{12, Token{1, 5}}, 7, 6)
	back := Lease{12, Token{2, 4}}
	for what, c := range map[string]struct {
		ops  []LeaseOp
		fine bool
	}{
		"the copy counts":       {[]LeaseOp{kept, read(3, "k", Lease{11, Token{1, 1}}, 8, 2)}, true},
		"the copy is forgotten": {[]LeaseOp{kept, read(3, "k", Lease{}, 8, 2)}, false},
		"its time is over":      {[]LeaseOp{kept, read(6, "k", Lease{}, 8, 2)}, true},
		"what came later":       {[]LeaseOp{kept, late, end, read(3, "k", Lease{11, Token{1, 1}}, 8, 2)}, true},
		"both go on":            {[]LeaseOp{kept, late, end, acquired(3, "k", 13, Token{1, 1}, Token{2, 3}, 8), read(4, "k", Lease{12, Token{1, 5}}, 7, 6)}, true},
		"brought":               {[]LeaseOp{kept, late, end, read(6, "k", Lease{}, 8, 3), read(7, "k", back, 8, 4)}, true},
		"brought twice": {[]LeaseOp{kept, late, end, read(6, "k", Lease{}, 8, 3), read(7, "k", back, 8, 4),
			{Key: "k", Kind: Revoke, Call: 8 * second, Return: 8 * second, OK: true, Expect: back.Token, Cluster: 8, Index: 5}, read(9, "k", back, 8, 6)}, false},
	} {
		if found := judged(c.ops...); (len(found) == 0) != c.fine {
			t.Errorf("%s: %v", what, found)
		}
	}
	if found := judged(slices.Repeat([]LeaseOp{kept}, 2)...); len(found) == 0 {
		t.Error("one grant twice is fine")
	}
}
