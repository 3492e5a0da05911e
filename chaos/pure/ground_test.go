package pure

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// small is a scenario that takes a moment.
func small() chaos.Scenario {
	return chaos.Scenario{
		Name: "small", Doc: "a crash, a cut and a worker's death", Grounds: []chaos.Place{chaos.Pure}, Replicas: 3, Workers: 3, Load: chaos.Load{Sessions: 6},
		Duration: 25 * time.Second, Settle: 10 * time.Second, Bounds: chaos.Bounds{Regret: 4},
		Faults: []chaos.Fault{
			{Kind: chaos.Crash, At: 5 * time.Second, For: 3 * time.Second, A: []int{0}},
			{Kind: chaos.Cut, At: 8 * time.Second, For: 7 * time.Second, A: []int{1}},
			{Kind: chaos.Worker, At: 10 * time.Second, For: 4 * time.Second, A: []int{2}},
			{Kind: chaos.Loss, At: 15 * time.Second, For: 5 * time.Second, Amount: 0.1},
		},
	}
}

// TestSmallScenarioPasses: the whole catalogue is played by rhizome-lab chaos,
// this one by every test run.
func TestSmallScenarioPasses(t *testing.T) {
	s := small()
	h, err := Ground{}.Run(t.Context(), &s, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range chaos.Judge(&s, h) {
		t.Errorf("%v %s: %s", v.At, v.Checker, v.What)
	}
	if len(h.Requests) < 10 || h.IdealTTFT == 0 || len(h.Truths) != s.Workers || len(h.Faults) != 2*len(s.Faults) {
		t.Errorf("%d requests, ideal TTFT %v, %d engines' truths, %d happenings: the run is none", len(h.Requests), h.IdealTTFT, len(h.Truths), len(h.Faults))
	}
}

// TestOneSeedOneTrace: a history is a function of the scenario and the seed.
func TestOneSeedOneTrace(t *testing.T) {
	s := small()
	s.Bounds.Regret = 0
	trace := func(seed uint64) []byte {
		h, err := Ground{}.Run(t.Context(), &s, seed)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := trace(7)
	if !bytes.Equal(first, trace(7)) {
		t.Error("two runs of one seed differ")
	}
	if bytes.Equal(first, trace(8)) {
		t.Error("two seeds give one run")
	}
}

// TestFaultsHappen: what a scenario says goes wrong does.
func TestFaultsHappen(t *testing.T) {
	s := chaos.Scenario{
		Name: "all", Doc: "everything once", Grounds: []chaos.Place{chaos.Pure}, Replicas: 3, Workers: 3, Load: chaos.Load{Sessions: 6},
		Duration: 40 * time.Second, Settle: 5 * time.Second,
		Faults: []chaos.Fault{
			{Kind: chaos.Crash, At: 5 * time.Second, For: 2 * time.Second, A: []int{0}},
			{Kind: chaos.Pause, At: 12 * time.Second, For: 6 * time.Second, A: []int{1}},
			{Kind: chaos.Cut, At: 22 * time.Second, For: 6 * time.Second, A: []int{2}},
			{Kind: chaos.Worker, At: 30 * time.Second, For: 4 * time.Second, A: []int{0}},
		},
	}
	h, err := Ground{}.Run(t.Context(), &s, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := func(when time.Duration, replica int) *chaos.Sample {
		for i := range h.Samples {
			if x := &h.Samples[i]; x.At >= when && x.Replica == replica {
				return x
			}
		}
		t.Fatalf("no sample of replica %d at %v", replica, when)
		return nil
	}
	if at(6*time.Second, 0).Live || !at(9*time.Second, 0).Live || at(9*time.Second, 0).Name == at(time.Second, 0).Name {
		t.Error("replica 0 did not die and come back under another name")
	}
	if at(15*time.Second, 1).Live || len(at(17500*time.Millisecond, 0).Members) != 2 {
		t.Error("replica 1 did not stand still until the others called it dead")
	}
	if len(at(27500*time.Millisecond, 2).Members) != 1 || len(at(33*time.Second, 2).Members) != 3 {
		t.Error("replica 2 was not alone, or did not come back")
	}
	for _, q := range h.Requests { // a balancer notices
		for _, down := range [][3]time.Duration{{0, 5200 * time.Millisecond, 7 * time.Second}, {1, 13200 * time.Millisecond, 18 * time.Second}} {
			if q.Replica == int(down[0]) && q.At >= down[1] && q.At < down[2] {
				t.Errorf("request %d came to replica %d at %v", q.ID, q.Replica, q.At)
			}
		}
	}
	if n := len(at(33*time.Second, 0).Healthy); n != 2 {
		t.Errorf("%d workers of 3 look healthy while one is down", n)
	}
	if _, err := (Ground{}).Run(t.Context(), &chaos.Scenario{Name: "x", Doc: "x", Grounds: s.Grounds, Replicas: 1, Workers: 1, Load: s.Load, Duration: time.Second,
		Faults: []chaos.Fault{{Kind: chaos.DiskFull}}}, 1); err == nil {
		t.Error("a fault that this ground can't make was taken")
	}
}

// A replica that was cut off for long is agreed to be dead, learns of it when it is
// back, and lives on as the next incarnation; what it promised before is void.
func TestTheCutOffAreFenced(t *testing.T) {
	s := small()
	s.Duration, s.Settle = 30*time.Second, time.Second
	s.Faults = []chaos.Fault{{Kind: chaos.Cut, At: 5 * time.Second, For: 20 * time.Second, A: []int{2}}}
	r, err := newRun(&s, 1)
	if err != nil {
		t.Fatal(err)
	}
	former := core.Replica{Name: r.Replica(2).Name}
	fencedAt := [3]time.Duration{}
	incs := make(map[uint64]bool)
	var look func()
	look = func() {
		for i := range fencedAt {
			if fencedAt[i] == 0 && r.Fenced(i, former) {
				fencedAt[i] = r.Now()
			}
			st := r.Replica(i)
			for _, p := range append(st.Held, st.Told...) {
				if p.Origin.Name == former.Name {
					incs[p.Origin.Inc] = true
				}
				if fencedAt[i] != 0 && p.Origin == former {
					t.Errorf("at %v replica %d holds promise %d of %v, which is dead", r.Now(), i, p.No, p.Origin)
				}
			}
		}
		r.At(r.Now()+500*time.Millisecond, look)
	}
	r.At(time.Second, look)
	if err := r.Play(); err != nil {
		t.Fatal(err)
	}
	const agreedAfter = 5*time.Second + 4*time.Second + 10*time.Second
	if r.Fences() != 1 || fencedAt[0] < agreedAfter || fencedAt[0] > agreedAfter+2*time.Second || fencedAt[2] < 25*time.Second || fencedAt[2] > 27*time.Second {
		t.Errorf("%d fences, known to replicas at %v", r.Fences(), fencedAt)
	}
	if !incs[0] || !incs[1] {
		t.Errorf("incarnations that promised: %v", incs)
	}
}
