package workload

import (
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// extends checks that each turn's prompt is the former prompt and answer and
// one thing more.
func extends(t *testing.T, p *Plan) {
	t.Helper()
	last := make(map[int]*Job)
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if former, ok := last[j.Session]; ok {
			want := append(slices.Clone(former.Prompt), former.Answer)
			if len(j.Prompt) != len(want)+1 || !slices.Equal(j.Prompt[:len(want)], want) {
				t.Fatalf("job %d: %v after %v", i, j.Prompt, want)
			}
			if &j.Prompt[0] != &former.Prompt[0] {
				t.Fatalf("job %d has a copy of the former prompt", i)
			}
		}
		last[j.Session] = j
	}
}

func TestChatPlans(t *testing.T) {
	chat, fleet := SyntheticChat(1, 8, 2*time.Minute), ChatFleet(1, 8, time.Minute)
	for _, p := range []*Plan{&chat, &fleet} {
		lawfulOpenLoop(t, p)
		extends(t, p)
	}
	if !reflect.DeepEqual(chat, SyntheticChat(1, 8, 2*time.Minute)) || reflect.DeepEqual(chat, SyntheticChat(2, 8, 2*time.Minute)) {
		t.Error("the plan is not the seed's")
	}
	closed := DefaultChat()
	closed.Concurrent = 5
	p := closed.Plan("closed", 40)
	lawful(t, &p)
	extends(t, &p)
	if len(p.Jobs[0].Waits) != 0 {
		t.Error("the first session waits")
	}
	last := make(map[int]int)
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if j.Turn == 0 && j.Session >= 5 && !slices.Equal(j.Waits, []int{last[j.Session-5]}) {
			t.Errorf("session %d waits for %v, not for the one that had its place", j.Session, j.Waits)
		}
		last[j.Session] = i
	}
}

// The counts are those of the published run.
func TestChatFleetHasThePublishedShape(t *testing.T) {
	if testing.Short() {
		t.Skip("165k requests")
	}
	p := ChatFleet(1, 240, 180*time.Second)
	sessions, late := 0, 0
	for i := range p.Jobs {
		sessions = max(sessions, p.Jobs[i].Session+1)
		if j := &p.Jobs[i]; j.Turn == 0 && j.At > 180*time.Second {
			late++
		}
	}
	if sessions != 611*180 || late > sessions/100 {
		t.Errorf("%d sessions, %d of them after 180 s; published 611 a second for 180 s", sessions, late)
	}
	if n := float64(len(p.Jobs)); math.Abs(n/163_958-1) > 0.02 {
		t.Errorf("%v requests, published 163958", n)
	}
}

func TestPlansFitInMemory(t *testing.T) {
	c := DefaultChat()
	c.StartsPerSecond, c.MinTurns, c.MaxTurns = 500, 5, 5
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := c.Plan("big", 100_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if mb := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 20; len(p.Jobs) != 500_000 || mb > 150 {
		t.Errorf("%d jobs take %d MB", len(p.Jobs), mb)
	}
}

func TestBursts(t *testing.T) {
	background := SyntheticChat(1, 2, 2*time.Minute)
	o := DefaultBursts(1)
	p := Bursts(background, o)
	lawfulOpenLoop(t, &p)
	byPrefix := make(map[uint64][]*Job)
	var rest []Job
	for i := range p.Jobs {
		if j := &p.Jobs[i]; j.Prompt[0].Tokens == o.PrefixTokens {
			byPrefix[j.Prompt[0].ID] = append(byPrefix[j.Prompt[0].ID], j)
		} else {
			rest = append(rest, *j)
		}
	}
	if len(byPrefix) < 4 {
		t.Errorf("%d bursts in 2 minutes", len(byPrefix))
	}
	for id, jobs := range byPrefix {
		tails := make(map[uint64]bool)
		for _, j := range jobs {
			tails[j.Prompt[1].ID] = true
			if j.At != jobs[0].At {
				t.Errorf("burst %x arrives at %v and %v", id, j.At, jobs[0].At)
			}
		}
		if len(jobs) != 28 || len(tails) != 28 {
			t.Errorf("burst %x has %d requests with %d tails", id, len(jobs), len(tails))
		}
	}
	for i := range rest {
		if rest[i].Waits = background.Jobs[i].Waits; !reflect.DeepEqual(rest[i], background.Jobs[i]) {
			t.Fatalf("background job %d became %+v", i, rest[i])
		}
	}
	o.Every = 0
	if got := Bursts(background, o); len(got.Jobs) != len(background.Jobs) {
		t.Error("bursts every 0 s")
	}
}

func TestDiurnal(t *testing.T) {
	p := SyntheticChat(1, 16, 4*time.Minute)
	period, depth := time.Minute, 0.8
	d := Diurnal(p, period, depth)
	lawfulOpenLoop(t, &d)
	extends(t, &d)
	if !reflect.DeepEqual(p, SyntheticChat(1, 16, 4*time.Minute)) {
		t.Fatal("the plan given was changed")
	}
	day, night := 0, 0
	for i := range d.Jobs {
		if j := &d.Jobs[i]; j.Turn == 0 && j.At < 4*time.Minute {
			if j.At%period < period/2 {
				day++
			} else {
				night++
			}
		}
	}
	want := (1 + 2*depth/math.Pi) / (1 - 2*depth/math.Pi)
	if got := float64(day) / float64(night); math.Abs(got/want-1) > 0.15 {
		t.Errorf("%d by day, %d by night: ratio %.2f, want %.2f", day, night, got, want)
	}
	for i := range d.Jobs {
		for _, w := range d.Jobs[i].Waits {
			if gap := d.Jobs[i].At - d.Jobs[w].At; gap != d.Jobs[i].After {
				t.Fatalf("job %d comes %v after the one before, think time %v", i, gap, d.Jobs[i].After)
			}
		}
	}
}

func TestWhenExpectedIsTheRoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := time.Duration(rapid.Int64Range(1e6, 1e12).Draw(t, "period"))
		depth := rapid.Float64Range(0, 0.99).Draw(t, "depth")
		at := time.Duration(rapid.Int64Range(0, 1e14).Draw(t, "at"))
		got := whenExpected(at, period, depth)
		arrived := float64(got) + depth*float64(period)/(2*math.Pi)*(1-math.Cos(2*math.Pi*float64(got)/float64(period)))
		if math.Abs(arrived-float64(at)) > 4+1e-9*float64(at) {
			t.Fatalf("at %v: %v, by which %v have arrived", at, got, time.Duration(arrived))
		}
	})
}

func TestHide(t *testing.T) {
	p := SyntheticChat(1, 16, 4*time.Minute)
	h := Hide(p, 0.3, 1)
	hidden := make(map[int]bool)
	for i := range h.Jobs {
		j := &h.Jobs[i]
		if was, ok := hidden[j.Session]; ok && was != j.Hidden {
			t.Fatalf("session %d is hidden in part", j.Session)
		}
		hidden[j.Session] = j.Hidden
		if p.Jobs[i].Hidden {
			t.Fatal("the plan given was changed")
		}
	}
	n := 0
	for _, is := range hidden {
		if is {
			n++
		}
	}
	if share := float64(n) / float64(len(hidden)); math.Abs(share-0.3) > 0.03 {
		t.Errorf("%.3f of the sessions are hidden, want 0.3", share)
	}
}

func TestStatsOfNothing(t *testing.T) {
	if s := Stats(&Plan{Name: "x"}, 16); s != (PlanStats{Name: "x"}) {
		t.Errorf("%+v", s)
	}
}
