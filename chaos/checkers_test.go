package chaos

import (
	"strings"
	"testing"
	"time"
)

// fine is a scenario and a history in which nothing is wrong.
func fine() (*Scenario, *History) {
	s := &Scenario{
		Name: "x", Doc: "x", Grounds: []Place{Pure}, Replicas: 2, Workers: 1, Load: Load{Sessions: 1}, Duration: 40 * second, Settle: 10 * second,
		Faults: []Fault{{Kind: Cut, At: 10 * second, For: 10 * second, A: []int{0}}}, Bounds: Bounds{Regret: 2},
	}
	h := &History{End: 50 * second, IdealTTFT: 100 * time.Millisecond}
	h.Faults = []Happening{{At: 10 * second}, {At: 20 * second, Ends: true}}
	h.Requests = []Request{{ID: 1, At: second, First: 1100 * time.Millisecond, End: 2 * second, Outcome: Answered, Ends: 1, Sent: second, Faultless: true}}
	h.Workers = []WorkerLife{{Worker: 0}}
	for at := second; at <= 50*second; at += second {
		for i, name := range []string{"a", "b"} {
			x := Sample{At: at, Replica: i, Name: name, Live: true, Members: []string{"a", "b"}, Healthy: []int{0}, Leader: -1, Goroutines: 10, Memory: 1 << 20}
			x.Joined = []string{"b", "a"}[i : i+1]
			if at > 14*second && at < 20*second {
				x.Members, x.Joined = []string{name}, []string{}
			}
			n := uint64(at / second)
			x.Streams = []Stream{{Worker: 0, Boot: 1, Next: n, Digest: n * 7}}
			x.Applied, x.Leases = n, n*3
			h.Samples = append(h.Samples, x)
		}
	}
	h.Truths = []Stream{{Worker: 0, Next: 50, Digest: 350}}
	h.Clusters = []LeaseCluster{{Cluster: 7, Past: []LeaseBegin{{Cluster: 7}}}}
	h.Leases = []LeaseOp{
		{Client: 1, Key: "k", Kind: Acquire, Call: 1, Return: 2, OK: true, Gives: 11, Lease: Lease{11, Token{1, 1}}, Cluster: 7, Index: 1},
		{Client: 2, Key: "k", Kind: Read, Call: 3, Return: 4, OK: true, Lease: Lease{11, Token{1, 1}}, Cluster: 7, Index: 1},
		{Client: 1, Key: "k", Kind: Renew, Call: 5, Return: 6, OK: true, Expect: Token{1, 1}, Lease: Lease{11, Token{1, 1}}, Cluster: 7, Index: 2},
		{Client: 2, Key: "k", Kind: Revoke, Call: 7, Return: 8, OK: true, Expect: Token{1, 1}, Cluster: 7, Index: 3},
		{Client: 2, Key: "k", Kind: Acquire, Call: second, Return: second, OK: true, Gives: 12, Lease: Lease{12, Token{1, 4}}, Cluster: 7, Index: 4},
		{Client: 1, Key: "k", Kind: Renew, Call: 2 * second, Return: 2 * second, Expect: Token{1, 1}, Lease: Lease{12, Token{1, 4}}, Cluster: 7, Index: 5},
		{Client: 1, Key: "k", Kind: Read, Call: 7 * second, Return: 7 * second, Cluster: 7, Index: 6},
		{Client: 3, Key: "k", Kind: Seen, Call: 5 * second, Return: 5 * second, OK: true, Lease: Lease{12, Token{1, 4}}, Cluster: 7},
	}
	return s, h
}

func TestNothingIsWrong(t *testing.T) {
	s, h := fine()
	for _, v := range Judge(s, h) {
		t.Errorf("%v %s: %s", v.At, v.Checker, v.What)
	}
}

// TestCheckersCatch: each checker finds the faults planted for it, and only it
// does.
func TestCheckersCatch(t *testing.T) {
	last := func(h *History) *Sample { return &h.Samples[len(h.Samples)-1] }
	planted := []struct {
		checker, says string
		spoil         func(s *Scenario, h *History)
	}{
		{"requests", "never ended", func(_ *Scenario, h *History) { h.Requests[0].Ends, h.Requests[0].Outcome = 0, Open }},
		{"requests", "ended 2 times", func(_ *Scenario, h *History) { h.Requests[0].Ends = 2 }},
		{"requests", "no documented end", func(_ *Scenario, h *History) {
			h.Requests = append(h.Requests, Request{ID: 2, Ends: 1, Outcome: Short, Worker: -1})
		}},
		{"requests", "1 of 2 requests failed", func(_ *Scenario, h *History) {
			h.Requests = append(h.Requests, Request{ID: 2, Ends: 1, Outcome: Refused, Worker: -1, Faultless: true})
		}},
		{"requests", "had been down for 2s", func(_ *Scenario, h *History) {
			h.Replicas = []ReplicaLife{{0, 0, 20 * second}, {0, 25 * second, 0}, {1, 0, 0}}
			for i, at := range []time.Duration{22 * second, 21 * second, 19 * second, 26 * second} { // only the first one comes too late
				h.Requests = append(h.Requests, Request{ID: uint64(2 + i), At: at, End: 27 * second, Ends: 1, Outcome: ReplicaLost, Worker: -1})
			}
		}},
		{"load", "requests booked", func(_ *Scenario, h *History) { last(h).InFlight = 1 }},
		{"load", "blocks promised", func(_ *Scenario, h *History) { last(h).Promises = 3 }},
		{"load", "slots", func(_ *Scenario, h *History) { last(h).Slots = 2 }},
		{"digests", "different contents", func(_ *Scenario, h *History) { h.Samples[2].Streams[0].Digest++ }},
		{"digests", "different contents", func(_ *Scenario, h *History) {
			for i := range 2 {
				h.Samples[6+i].Streams[0].Marks = []Mark{{Next: 1, Digest: uint64(i)}}
			}
		}},
		{"digests", "a second before", func(_ *Scenario, h *History) { h.Samples[60].Streams[0] = h.Samples[40].Streams[0] }},
		{"digests", "a second before", func(_ *Scenario, h *History) { h.Samples[60].Streams = nil }},
		{"digests", "unequal contents", func(_ *Scenario, h *History) { last(h).Corrupt = 1 }},
		{"digests", "its engine at", func(_ *Scenario, h *History) { h.Truths[0].Next++ }},
		{"digests", "hold different blocks", func(_ *Scenario, h *History) { h.Truths[0].Digest++ }},
		{"digests", "no sample", func(_ *Scenario, h *History) {
			h.Samples = h.Samples[:40]
		}},
		{"digests", "no engine told", func(_ *Scenario, h *History) { h.Truths = nil }},
		{"members", "answers nothing", func(_ *Scenario, h *History) { last(h).Live, last(h).Silent = false, true }},
		{"visible", "nothing shows of clock", func(s *Scenario, h *History) {
			s.Faults = []Fault{{Kind: ClockJump, At: 10 * second, For: 10 * second, A: []int{0}, Length: time.Hour}}
			for i := range h.Samples {
				if h.Samples[i].Replica == 1 { // the other one
					h.Samples[i].Told = []string{"clock"}
				}
			}
		}},
		{"members", "does not know b", func(_ *Scenario, h *History) { h.Samples[50].Members = []string{"a"} }},
		{"members", "no connection to b", func(_ *Scenario, h *History) { h.Samples[50].Joined = []string{} }},
		{"members", "takes c for alive", func(_ *Scenario, h *History) { h.Samples[50].Members = []string{"a", "b", "c"} }},
		{"members", "sends nothing to worker 0", func(_ *Scenario, h *History) { last(h).Healthy = nil }},
		{"tickets", "after its deadline", func(_ *Scenario, h *History) { last(h).Tickets = []Ticket{{Origin: "a", Deadline: 40 * second}} }},
		{"tickets", "was fenced", func(_ *Scenario, h *History) {
			last(h).Tickets = []Ticket{{Origin: "a", Deadline: 60 * second, Fenced: true}}
		}},
		{"leases", "no order", func(_ *Scenario, h *History) { h.Leases[1].Lease.Holder = 12 }},
		{"leases", "no order", func(_ *Scenario, h *History) { h.Leases[4].Lease.Token = Token{1, 1}; h.Leases = h.Leases[:5] }}, // a token twice
		{"leases", "no order", func(_ *Scenario, h *History) { h.Leases[5].OK = true }},                                          // renewed by an old token
		{"leases", "no order", func(_ *Scenario, h *History) { // read after it was revoked
			h.Leases = append(h.Leases, LeaseOp{Key: "k", Kind: Read, Call: 900 * time.Millisecond, Return: 901 * time.Millisecond, OK: true, Lease: Lease{11, Token{1, 1}}, Cluster: 7, Index: 3})
		}},
		{"leases", "no order", func(_ *Scenario, h *History) { h.Leases[6].Call, h.Leases[6].Return = 5*second, 5*second }}, // gone before its time
		{"leases", "no order", func(_ *Scenario, h *History) { // granted beside one that is held
			h.Leases = append(h.Leases, LeaseOp{Key: "k", Kind: Acquire, Call: 3 * second, Return: 3 * second, OK: true, Gives: 13, Lease: Lease{13, Token{1, 5}}, Cluster: 7, Index: 5})
		}},
		{"leases", "nothing is known of the leases", func(s *Scenario, h *History) {
			s.Faults = append(s.Faults, Fault{Kind: Crash, At: 10 * second, For: second, A: []int{0}, Keep: true})
			h.Clusters = append(h.Clusters, LeaseCluster{8, []LeaseBegin{{Cluster: 8}}})
		}},
		{"leases", "where it comes from", func(_ *Scenario, h *History) { h.Clusters = nil }},
		{"leases", "in another", func(_ *Scenario, h *History) {
			h.Leases = append(h.Leases, LeaseOp{Client: 4, Key: "k", Kind: Seen, OK: true, Lease: Lease{13, Token{1, 4}}, Cluster: 7})
		}},
		{"leases", "in a table that had", func(_ *Scenario, h *History) {
			h.Leases = append(h.Leases, LeaseOp{Client: 3, Key: "k", Kind: Seen, OK: true, Lease: Lease{11, Token{1, 1}}, Cluster: 7})
		}},
		{"tables", "another table", func(_ *Scenario, h *History) { last(h).Leases++ }},
		{"tables", "two seconds before", func(_ *Scenario, h *History) { last(h).Applied, last(h).Leases = 40, 120 }},
		{"dead", "had been dead for", func(_ *Scenario, h *History) {
			h.Workers = []WorkerLife{{Worker: 0, Until: 5 * second}, {Worker: 0, From: 9500 * time.Millisecond}}
			h.Requests = append(h.Requests, Request{ID: 2, At: 9 * second, First: 9 * second, End: 10 * second, Ends: 1, Outcome: Answered, Tries: []Try{{9 * second, 0}}})
		}},
		{"regret", "all-knowing", func(_ *Scenario, h *History) { h.IdealTTFT = 40 * time.Millisecond }},
		{"regret", "while faults went on", func(_ *Scenario, h *History) {
			h.Place, h.IdealTTFT = Real, 0
			for i := range time.Duration(120) {
				took := 50 * time.Millisecond
				if i >= 60 {
					took = 250 * time.Millisecond
				}
				at := 5*second + i*100*time.Millisecond
				h.Requests = append(h.Requests, Request{ID: 9, At: at, First: at + took, End: at + took, Ends: 1, Outcome: Answered, Worker: -1})
			}
		}},
		{"resources", "MiB", func(_ *Scenario, h *History) { last(h).Memory = 2 << 30 }},
		{"resources", "goroutines", func(_ *Scenario, h *History) { last(h).Goroutines = 200 }},
		{"visible", "nothing shows", func(_ *Scenario, h *History) {
			for i := range h.Samples {
				h.Samples[i].Members, h.Samples[i].Joined = []string{"a", "b"}, nil
			}
		}},
		{"visible", "nothing shows of gap", func(s *Scenario, h *History) {
			s.Faults, h.Place = append(s.Faults, Fault{Kind: EventGap, At: 10 * second, For: 3 * second, A: []int{0}}), Real
		}},
		{"visible", "nothing shows of worker", func(s *Scenario, h *History) {
			s.Faults = append(s.Faults, Fault{Kind: Worker, At: 5 * second, For: 8 * second, A: []int{0}})
		}},
	}
	caught := make(map[string]bool)
	for _, p := range planted {
		s, h := fine()
		p.spoil(s, h)
		found := Judge(s, h)
		said := false
		for _, v := range found {
			if v.Checker != p.checker {
				t.Errorf("planted for %s (%s): %s says %s", p.checker, p.says, v.Checker, v.What)
			}
			said = said || strings.Contains(v.What, p.says)
		}
		if !said {
			t.Errorf("%s did not find what was planted (%s): %v", p.checker, p.says, found)
		}
		caught[p.checker] = true
	}
	for _, c := range Checkers() {
		if !caught[c.Name] {
			t.Errorf("nothing was planted for checker %s", c.Name)
		}
	}
}

// Where all replicas died, others may agree anew from the beginning; where one
// lived on, what it had applied counts.
func TestTablesMayBeginAnewWhenAllDied(t *testing.T) {
	for _, allDied := range []bool{true, false} {
		s, h := fine()
		for i := range h.Samples {
			x := &h.Samples[i]
			if x.At > 30*second && (allDied || x.Replica == 1) {
				x.Name, x.Applied, x.Leases = "new "+x.Name, x.Applied-30, 3*(x.Applied-30)
			}
		}
		if found := tablesEqual().Check(s, h); (len(found) == 0) != allDied {
			t.Errorf("all died: %v, found: %v", allDied, found)
		}
	}
}
