package fleet_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
)

// specs returns the specs of some of the ground's workers.
func (g *ground) specs(which ...int) []engine.Spec {
	g.t.Helper()
	var specs []engine.Spec
	for _, i := range which {
		spec, err := engine.ParseSpec(g.workers[i].Spec())
		if err != nil {
			g.t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	return specs
}

func (g *ground) set(specs []engine.Spec) {
	g.t.Helper()
	if err := g.fleet.SetWorkers(specs); err != nil {
		g.t.Fatal(err)
	}
}

// A worker that is taken out gets nothing new at once, keeps what it has in
// flight, and starts from zero when it comes back.
func TestRemovedWorkerLeavesAtOnceAndComesBackAnew(t *testing.T) {
	g := newGround(t, 2, nil)
	g.prompt(g.workers[0], 0, 256)
	g.await("its blocks to be indexed", func() bool { c := g.member(0).Cache(); return c.HeldTokens[0] >= 256 })
	stays, leaves := g.member(1), g.member(0)
	b := &fleet.Booking{PromptTokens: 100, UncachedTokens: 100, OutputTokens: 10, Choices: 1}
	leaves.Ledger.Book(1, b)
	stays.Ledger.Book(1, &fleet.Booking{PromptTokens: 7, Choices: 1})

	g.set(g.specs(1))
	view := g.fleet.View()
	if members, known := view.Serving("m"); !known || len(members) != 1 || members[0] != stays || len(view.Members) != 1 {
		t.Fatalf("after the removal %v serve", members)
	}
	if stays.Ledger.Booked() != 1 || leaves.Ledger.Booked() != 1 {
		t.Errorf("bookings: %d on who stays, %d on who leaves", stays.Ledger.Booked(), leaves.Ledger.Booked())
	}
	g.await("what was known of it to be forgotten, and its memory to be free", func() bool {
		s := g.index.Stats()
		return s.OpenSlots == 1 && s.DrainingSlots == 0 && s.Holders == 0
	})

	g.set(g.specs(0, 1))
	back := g.fleet.View().Members[0]
	if back == leaves || back.Ledger.Booked() != 0 || back.Target != leaves.Target {
		t.Errorf("who comes back: the same member %v, %d booked", back == leaves, back.Ledger.Booked())
	}
	g.await("it to be healthy, and its cache to be known again", func() bool {
		c := back.Cache()
		return back.Healthy() && c.Live && c.HeldTokens[0] >= 256
	})
	leaves.Ledger.Release(2, b)
	if leaves.Ledger.Booked() != 0 || back.Ledger.Booked() != 0 {
		t.Errorf("after the old request's end: %d on the old member, %d on the new", leaves.Ledger.Booked(), back.Ledger.Booked())
	}
}

// A worker whose spec changes is another one, though its name is the same.
func TestChangedSpecStartsAnew(t *testing.T) {
	g := newGround(t, 1, nil)
	old := g.member(0)
	specs := g.specs(0)
	g.set(specs)
	if g.member(0) != old {
		t.Error("the same spec made another member")
	}
	specs[0].Token = "another"
	g.set(specs)
	if g.member(0) != old {
		t.Error("another token made another member")
	}
	specs[0].Model = "renamed"
	g.set(specs)
	now := g.fleet.View().Members[0]
	if now == old || now.Worker.Spec.Model != "renamed" {
		t.Errorf("the changed spec is not in the view: %v", now.Worker.Spec)
	}
	g.await("it to be followed", func() bool { return now.Healthy() && now.Cache().Live })
	g.await("the old one to be forgotten", func() bool { return g.index.Stats().OpenSlots == 1 })
	if err := g.fleet.Ready(); err != nil {
		t.Errorf("a changed worker must not take the replica out: %v", err)
	}
}

func TestBadSpecChangesNothing(t *testing.T) {
	g := newGround(t, 1, nil)
	before := g.fleet.View()
	err := g.fleet.SetWorkers(append(g.specs(0), engine.Spec{URL: "http://h:1"}, engine.Spec{URL: "ftp://h"}))
	if err == nil || !strings.Contains(err.Error(), "ftp://h") {
		t.Errorf("error %v does not name the spec", err)
	}
	if g.fleet.View() != before || g.index.Stats().OpenSlots != 1 {
		t.Error("a refused list changed the fleet")
	}
}

// Whatever the order of changes, the index holds slots of the present members
// alone, and no goroutine of a former one is left (TestMain looks).
func TestAnyOrderOfChanges(t *testing.T) {
	urls := []string{"http://127.0.0.1:1", "http://127.0.0.2:1", "http://127.0.0.3:1", "http://127.0.0.4:1"}
	rapid.Check(t, func(t *rapid.T) {
		x := index.New(index.Config{})
		f, err := fleet.New(fleet.Config{}, fleet.Deps{Index: x, Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: clock.Real(),
			Log: slog.New(slog.DiscardHandler)}, nil, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var wg sync.WaitGroup
		steps := rapid.SliceOfN(rapid.SliceOfDistinct(rapid.IntRange(0, 2*len(urls)-1), func(i int) int { return i / 2 }), 1, 12).Draw(t, "lists")
		runAt, endAt := rapid.IntRange(0, len(steps)).Draw(t, "run at"), rapid.IntRange(0, len(steps)).Draw(t, "end at")
		for n, list := range steps {
			if n == runAt {
				wg.Go(func() { f.Run(ctx) })
			}
			if n == endAt {
				cancel()
			}
			var specs []engine.Spec
			for _, i := range list {
				specs = append(specs, engine.Spec{URL: urls[i/2], Model: []string{"a", "b"}[i%2]})
			}
			if err := f.SetWorkers(specs); err != nil {
				t.Fatal(err)
			}
			members := f.View().Members
			if len(members) != len(specs) {
				t.Fatalf("%d members of %d specs", len(members), len(specs))
			}
			for i, m := range members {
				if m.Worker.Spec.URL != specs[i].URL || m.Worker.Spec.Model != specs[i].Model {
					t.Fatalf("member %d is %v, want %v", i, m.Worker.Spec, specs[i])
				}
			}
		}
		cancel()
		wg.Wait()
		if open, want := x.Stats().OpenSlots, len(f.View().Members); open != want {
			t.Fatalf("%d slots are open for %d members", open, want)
		}
		slots := map[index.Slot]bool{}
		for _, m := range f.View().Members {
			slots[m.Cache().Slot] = true
		}
		if len(slots) != len(f.View().Members) {
			t.Fatal("two members share a slot")
		}
	})
}

// Nothing is sent to a worker after it was taken out, however many decide at
// the same time as the list changes.
func TestViewChangesAsOneWhole(t *testing.T) {
	g := newGround(t, 3, nil)
	lists := [][]engine.Spec{g.specs(0, 1, 2), g.specs(2), g.specs(0, 2)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				v := g.fleet.View()
				members, known := v.Serving("m")
				if !known || len(members) == 0 {
					t.Error("for a moment nobody served the model, though one worker always stayed")
					return
				}
				for _, m := range members {
					if !slices.Contains(v.Members, m) {
						t.Error("a view serves by a member it does not have")
						return
					}
				}
				g.fleet.Describe()
			}
		})
	}
	for i := range 30 {
		g.set(lists[i%len(lists)])
	}
	cancel()
	wg.Wait()
	g.set(lists[2])
	g.await("only the present members to be indexed", func() bool { return g.index.Stats().OpenSlots == 2 })
}
