//go:build linux

package real

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

func TestNamesTellTheirOwner(t *testing.T) {
	o, err := self(3)
	if err != nil {
		t.Fatal(err)
	}
	if got, ours := ownerOf(o.name("r0")); !ours || got != o || !o.alive() {
		t.Errorf("%+v owns %q, which is read as %+v, %v", o, o.name("r0"), got, ours)
	}
	if (owner{o.pid, o.ticks + 1, o.run}).alive() {
		t.Error("an earlier process of the same number counts as alive")
	}
	for _, name := range []string{"", "rzchaos", "rzchaos-x-1-1-r0", "rzchaos-1-1-r0", "other-1-2-3-r0", "rzchaos-99999999999999999999-1-1-r0"} {
		if _, ours := ownerOf(name); ours {
			t.Errorf("%q counts as ours", name)
		}
	}
}

// Two faults that drop the same packets are over when both are.
func TestRulesCount(t *testing.T) {
	r := newRules(2)
	if !r.cut(0, 1, true) || r.cut(0, 1, true) || r.cut(0, 1, false) || !strings.Contains(r.text(1), "10.77.10.0/24") || strings.Contains(r.text(0), "drop\n\t\t") {
		t.Errorf("%q, %q", r.text(0), r.text(1))
	}
	if !r.cut(0, 1, false) || strings.Contains(r.text(1), "saddr") || r.cut(0, 1, false) {
		t.Errorf("%q", r.text(1))
	}
}

func TestTroubled(t *testing.T) {
	lives := []span{{0, 10 * time.Second}, {15 * time.Second, 0}}
	for _, c := range []struct {
		from, until time.Duration
		want        bool
	}{{1, 9 * time.Second, false}, {9 * time.Second, 10 * time.Second, true}, {11 * time.Second, 12 * time.Second, true}, {14 * time.Second, 16 * time.Second, true}, {15 * time.Second, time.Hour, false}} {
		if got := troubled(lives, c.from, c.until); got != c.want {
			t.Errorf("from %v to %v: %v", c.from, c.until, got)
		}
	}
}

func TestOutcomes(t *testing.T) {
	broken := load.Answer{Kind: load.KindBroken, Err: fmt.Errorf("read: %w", io.ErrUnexpectedEOF)}
	for _, c := range []struct {
		answer              load.Answer
		replicaLost, worker bool
		want                chaos.Outcome
	}{
		{load.Answer{}, true, true, chaos.Answered}, {load.Answer{Kind: "status_503"}, false, false, chaos.Refused},
		{load.Answer{Kind: load.KindStream}, false, false, chaos.WorkerLost}, {load.Answer{Kind: load.KindConnect}, true, false, chaos.ReplicaLost},
		{broken, true, false, chaos.ReplicaLost}, {broken, false, true, chaos.WorkerLost}, {broken, false, false, chaos.Short},
		{load.Answer{Kind: load.KindBroken, Err: io.EOF}, false, true, chaos.Short}, {load.Answer{Kind: load.KindTimeout}, false, false, chaos.Open},
	} {
		if got := outcome(&c.answer, c.replicaLost, c.worker); got != c.want {
			t.Errorf("%+v, replica lost %v, worker lost %v: %s, want %s", c.answer, c.replicaLost, c.worker, got, c.want)
		}
	}
}

func TestSumMetrics(t *testing.T) {
	sums, err := sumMetrics(strings.NewReader("# HELP a b\na{x=\"1 }\",y=\"2\"} 3\na{x=\"2\"} 4.5\nb 1e3\n"))
	if err != nil || sums["a"] != 7.5 || sums["b"] != 1000 {
		t.Errorf("%v, %v", sums, err)
	}
	if _, err := sumMetrics(strings.NewReader("a x\n")); err == nil {
		t.Error("what is no number was taken")
	}
}

// lateClock is one whose n-th sleep takes a second too long.
type lateClock struct {
	clock.Clock
	now clock.Instant
	n   int
	end func() // called at the sleep after
}

func (c *lateClock) Now() clock.Instant { return c.now }

func (c *lateClock) Sleep(ctx context.Context, d time.Duration) error {
	switch c.n--; c.n {
	case 0:
		d += time.Second
	case -1:
		c.end()
	}
	c.now = c.now.Add(d)
	return ctx.Err()
}

func TestStalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if got := longestStall(ctx, &lateClock{n: 4, end: cancel}); got != time.Second {
		t.Errorf("a timer was a second late, and %v is said", got)
	}
}

// Each fault of the catalogue's scenarios for this ground can be played.
func TestTheCataloguesFaultsCanBePlayed(t *testing.T) {
	for _, s := range chaos.Catalogue() {
		if !s.On(chaos.Real) {
			continue
		}
		c := new(cluster)
		for i := range s.Replicas {
			c.replicas = append(c.replicas, &replica{n: i})
		}
		for i := range s.Workers {
			c.workers = append(c.workers, &worker{n: i})
		}
		d := &director{c: c, s: &s, flapped: make(map[*chaos.Fault]bool)}
		steps, err := d.plan()
		if err != nil {
			t.Error(err)
		}
		for i := 1; i < len(steps); i++ {
			if steps[i].at < steps[i-1].at {
				t.Errorf("%s: step %d is not in order", s.Name, i)
			}
		}
	}
}

// Each grant is noted once for each table; what is a hint is not.
func TestSeenLeases(t *testing.T) {
	s := newSeenLeases()
	d := lease.Description{Status: lease.Status{Cluster: "07", Fresh: true}, Held: []lease.Held{{Key: "k", Target: "1/-", Boot: "2", Gen: 1, Index: 5}}}
	hint := d
	hint.Fresh = false
	for i := range 3 {
		s.note(time.Duration(i), "a", &d)
		s.note(time.Duration(i), "c", &hint)
	}
	s.note(4, "b", &d)
	if len(s.ops) != 2 || s.ops[0].Client == s.ops[1].Client || s.ops[0].Lease != s.ops[1].Lease || s.ops[0].Cluster != 7 {
		t.Errorf("%+v", s.ops)
	}
	d.Held[0].Target = "3/-"
	s.note(5, "b", &d)
	s.note(6, "c", &d)
	if found := chaos.Judge(new(chaos.Scenario), &chaos.History{Leases: s.ops}); !slices.ContainsFunc(found, func(v chaos.Violation) bool { return v.Checker == "leases" }) {
		t.Errorf("one grant with two holders is fine: %v", found)
	}
}
