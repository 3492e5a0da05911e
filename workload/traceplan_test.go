package workload

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"
)

// lawful checks what every plan promises.
func lawful(t *testing.T, p *Plan) {
	t.Helper()
	turns := make(map[int]int)
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if j.At < 0 || j.After < 0 || j.PromptTokens() < 1 || j.Answer.Tokens < 0 {
			t.Fatalf("job %d: %+v", i, j)
		}
		if cap(j.Prompt) != len(j.Prompt) {
			t.Fatalf("who appends to job %d's prompt writes into the next one's", i)
		}
		for _, w := range j.Waits {
			if w < 0 || w >= i {
				t.Fatalf("job %d waits for %d", i, w)
			}
		}
		if j.Turn != turns[j.Session] {
			t.Fatalf("job %d is turn %d of session %d, whose next one is %d", i, j.Turn, j.Session, turns[j.Session])
		}
		turns[j.Session]++
	}
	for n := range len(turns) {
		if turns[n] == 0 {
			t.Fatalf("of %d sessions none has the number %d", len(turns), n)
		}
	}
}

// lawfulOpenLoop checks what plans ordered by time promise on top.
func lawfulOpenLoop(t *testing.T, p *Plan) {
	t.Helper()
	lawful(t, p)
	if !slices.IsSortedFunc(p.Jobs, func(a, b Job) int { return cmp.Compare(a.At, b.At) }) {
		t.Fatal("jobs are not ordered by time")
	}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		for _, w := range j.Waits {
			if before := &p.Jobs[w]; before.Session != j.Session || before.Turn != j.Turn-1 || before.At+j.After > j.At {
				t.Fatalf("job %d: %+v waits for %+v", i, j, before)
			}
		}
	}
}

func excerptOf(t *testing.T) []Request {
	t.Helper()
	reqs, err := Excerpt(0)
	if err != nil {
		t.Fatal(err)
	}
	return reqs
}

func TestTracePlan(t *testing.T) {
	reqs := excerptOf(t)
	held := TracePlan(reqs, TraceOptions{Name: "x", Seed: 3, Hold: true})
	open := TracePlan(reqs, TraceOptions{Name: "x", Seed: 3})
	fast := TracePlan(reqs, TraceOptions{Name: "x", Seed: 3, Speed: 4, Limit: 100})
	for _, p := range []*Plan{&held, &open, &fast} {
		lawfulOpenLoop(t, p)
	}
	if len(held.Jobs) != len(reqs) || len(fast.Jobs) != 100 {
		t.Fatalf("%d and %d jobs", len(held.Jobs), len(fast.Jobs))
	}
	jittered, first := Jitter(reqs, 3), Jitter(reqs[:100], 3)
	answers := make(map[uint64]bool)
	waiting := 0
	for i := range held.Jobs {
		h, r := held.Jobs[i], &jittered[i]
		waiting += len(h.Waits)
		if h.At != r.At || h.PromptTokens() != r.InputTokens || h.Answer.Tokens != r.OutputTokens || !h.Hidden || answers[h.Answer.ID] {
			t.Fatalf("job %d: %+v of %+v", i, h, r)
		}
		answers[h.Answer.ID] = true
		for k, s := range h.Prompt {
			if s.ID != r.HashIDs[k] || s.Tokens != min(BlockTokens, r.InputTokens-k*BlockTokens) {
				t.Fatalf("job %d span %d: %v", i, k, s)
			}
		}
		if i < 100 && fast.Jobs[i].At != first[i].At/4 {
			t.Fatalf("job %d at speed 4: %v", i, fast.Jobs[i].At)
		}
		h.Waits = nil
		if !reflect.DeepEqual(open.Jobs[i], h) {
			t.Fatalf("open loop differs in more than waiting: %+v, %+v", open.Jobs[i], h)
		}
	}
	if waiting < 20 {
		t.Errorf("only %d turns wait", waiting)
	}
	if reflect.DeepEqual(open, TracePlan(reqs, TraceOptions{Name: "x", Seed: 4})) {
		t.Error("seeds 3 and 4 give one plan")
	}
}

// The bound must be the one that the trace's readers compute, apart from
// partial last blocks, which no engine keeps.
func TestTracePlanKeepsTheTracesReuse(t *testing.T) {
	reqs := excerptOf(t)
	p := TracePlan(reqs, TraceOptions{})
	s, want := Stats(&p, BlockTokens), InfiniteCacheShare(reqs)
	if d := want.Tokens - s.CachedShare; d < 0 || d > 0.002 {
		t.Errorf("%.4f of the tokens reusable, the trace says %.4f", s.CachedShare, want.Tokens)
	}
}

func TestTracePlanTakesOptionalFields(t *testing.T) {
	reqs := []Request{
		{At: time.Second, InputTokens: 600, OutputTokens: 9, HashIDs: []uint64{1, 2}, Session: "s", Tenant: "acme", Tool: "grep"},
		{At: 2 * time.Second, InputTokens: 5, OutputTokens: 1, HashIDs: []uint64{7}},
		{At: 8 * time.Second, InputTokens: 700, OutputTokens: 9, HashIDs: []uint64{1, 3}, Session: "s", Delay: 4 * time.Second},
	}
	p := TracePlan(reqs, TraceOptions{Hold: true, Speed: 2})
	lawful(t, &p)
	first, other, second := p.Jobs[0], p.Jobs[1], p.Jobs[2]
	if first.Tenant != "acme" || first.Tool != "grep" || first.Hidden || !other.Hidden || second.Hidden {
		t.Errorf("labels: %+v", p.Jobs)
	}
	if second.Session != first.Session || second.Turn != 1 || other.Session == first.Session ||
		!slices.Equal(second.Waits, []int{0}) || second.After != 2*time.Second || len(first.Waits)+len(other.Waits) != 0 {
		t.Errorf("sessions: %+v", p.Jobs)
	}
}

func TestHalf(t *testing.T) {
	reqs := excerptOf(t)
	a, b := Half(reqs, A), Half(reqs, B)
	if len(a)+len(b) != len(reqs) || len(a) < 200 || len(b) < 200 {
		t.Fatalf("halves of %d and %d requests", len(a), len(b))
	}
	middle := reqs[len(reqs)-1].At / 2
	for i, r := range a {
		if r.At > middle || r.At != reqs[i].At {
			t.Fatalf("request %d of A at %v", i, r.At)
		}
	}
	for i, r := range b {
		if was := reqs[len(a)+i].At; r.At <= 0 || r.At != was-middle {
			t.Fatalf("request %d of B at %v, was %v", i, r.At, was)
		}
	}
	if Half(nil, A) != nil || Half(nil, B) != nil {
		t.Error("halves of nothing")
	}
}

// A prompt that is nothing but a common system prompt must not become the first
// turn of everybody's conversation, wherever it comes.
func TestBareSystemPromptChainsNobody(t *testing.T) {
	reqs := []Request{{InputTokens: 600, HashIDs: []uint64{0, 1}}}
	for n := range uint64(40) {
		reqs = append(reqs, Request{InputTokens: 1100, HashIDs: []uint64{0, 100 + n, 200 + n}})
	}
	reqs = append(reqs, Request{InputTokens: 1600, HashIDs: []uint64{0, 105, 300, 301}})
	for i, p := range Parents(reqs) {
		want := -1
		if i == len(reqs)-1 {
			want = 6
		}
		if p != want {
			t.Errorf("request %d continues %d, want %d", i, p, want)
		}
	}
}
