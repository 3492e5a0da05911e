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
	h.Leases = []LeaseOp{
		{Client: 1, Key: "k", Kind: "acquire", Call: 1, Return: 2, Holder: 1, Gen: 1, Index: 1, OK: true},
		{Client: 2, Key: "k", Kind: "read", Call: 3, Return: 4, Holder: 1, Gen: 1, Index: 1, OK: true},
		{Client: 1, Key: "k", Kind: "renew", Call: 5, Return: 6, Holder: 1, Gen: 1, Index: 2, OK: true},
		{Client: 2, Key: "k", Kind: "revoke", Call: 7, Return: 8, OK: true},
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
			h.Truths = nil
		}},
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
		{"leases", "no order", func(_ *Scenario, h *History) { h.Leases[1].Holder = 2 }},
		{"leases", "no order", func(_ *Scenario, h *History) { h.Leases[2].Index = 1 }}, // a token twice
		{"leases", "no order", func(_ *Scenario, h *History) { // read after it was revoked
			h.Leases = append(h.Leases, LeaseOp{Key: "k", Kind: "read", Call: 9, Return: 10, Holder: 1, Gen: 1, Index: 2, OK: true})
		}},
		{"tables", "another table", func(_ *Scenario, h *History) { last(h).Leases++ }},
		{"tables", "two seconds before", func(_ *Scenario, h *History) { last(h).Applied, last(h).Leases = 40, 120 }},
		{"dead", "had been dead for", func(_ *Scenario, h *History) {
			h.Workers = []WorkerLife{{Worker: 0, Until: 5 * second}, {Worker: 0, From: 9500 * time.Millisecond}}
			h.Requests = append(h.Requests, Request{ID: 2, At: 9 * second, First: 9 * second, End: 10 * second, Ends: 1, Outcome: Answered, Tries: []Try{{9 * second, 0}}})
		}},
		{"regret", "all-knowing", func(_ *Scenario, h *History) { h.IdealTTFT = 40 * time.Millisecond }},
		{"resources", "MiB", func(_ *Scenario, h *History) { last(h).Memory = 2 << 30 }},
		{"resources", "goroutines", func(_ *Scenario, h *History) { last(h).Goroutines = 200 }},
		{"visible", "nothing shows", func(_ *Scenario, h *History) {
			for i := range h.Samples {
				h.Samples[i].Members, h.Samples[i].Joined = []string{"a", "b"}, nil
			}
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
