package fleet_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// newRegistry returns a registry of a fleet that nobody runs.
func newRegistry(t testing.TB, c clock.Clock, cfg fleet.Config) (*fleet.Registry, *fleet.Fleet) {
	t.Helper()
	f, err := fleet.New(cfg, fleet.Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: c,
		Log: slog.New(slog.DiscardHandler)}, nil, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	return fleet.NewRegistry(f), f
}

func at(url, id string) discover.Found { return discover.Found{Spec: engine.Spec{URL: url, ID: id}} }

// listed says who is in the fleet: "url id sources state".
func listed(f *fleet.Fleet) []string {
	var all []string
	for _, d := range f.Describe() {
		all = append(all, strings.TrimPrefix(d.Worker, "http://")+" "+strings.Join(d.Sources, "+")+" "+d.Grade+" "+d.Why)
	}
	return all
}

func same(t *testing.T, f *fleet.Fleet, want ...string) {
	t.Helper()
	if got := listed(f); !slices.Equal(got, want) {
		t.Errorf("in the fleet are\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestRegistryMergesByNameAndByURL(t *testing.T) {
	r, f := newRegistry(t, clock.Real(), fleet.Config{})
	if err := r.SetStatic([]engine.Spec{{URL: "http://a:1"}, {URL: "http://b:1", Model: "mine"}}, []string{"dns:n", "file:f", "kubernetes:k"}); err != nil {
		t.Fatal(err)
	}
	if !f.View().Pending() {
		t.Error("three sources have told nothing, and nobody else is expected")
	}
	r.Sink("dns:n").Found([]discover.Found{at("http://10.0.0.1:1", ""), at("http://10.0.0.9:1", "")})
	r.Sink("kubernetes:k").Found([]discover.Found{
		{Spec: engine.Spec{URL: "http://10.0.0.1:1", ID: "ns/p:1"}, Instance: "uid/0"},
		{Spec: engine.Spec{URL: "http://b:1", ID: "ns/b:1", Model: "theirs"}, Draining: true, Why: "terminating"},
	})
	r.Sink("file:f").Found([]discover.Found{at("http://c:1", "ns/p:1")})
	// The file goes before Kubernetes: the pod of that name is at c.
	same(t, f, "a:1 config suspect ", "b:1 config+kubernetes:k draining terminating", "c:1 file:f+kubernetes:k suspect ", "10.0.0.1:1 dns:n suspect ", "10.0.0.9:1 dns:n suspect ")
	r.Sink("file:f").Found(nil)
	same(t, f, "a:1 config suspect ", "b:1 config+kubernetes:k draining terminating", "10.0.0.1:1 kubernetes:k+dns:n suspect ", "10.0.0.9:1 dns:n suspect ")
	if m := f.View().Members[1]; m.Worker.Spec.Model != "mine" {
		t.Errorf("of b the configuration's word does not hold: %+v", m.Worker.Spec)
	}
	if err := r.SetStatic([]engine.Spec{{URL: "http://a:1"}}, []string{"kubernetes:k"}); err != nil {
		t.Fatal(err)
	}
	same(t, f, "a:1 config suspect ", "10.0.0.1:1 kubernetes:k suspect ", "b:1 kubernetes:k draining terminating")
	r.Sink("dns:n").Found([]discover.Found{at("http://late:1", "")}) // from before the reload
	if n := len(f.View().Members); n != 3 {
		t.Errorf("a source that is no more told of a worker: %d", n)
	}
}

func TestAdminDecisionsOverrideAndSurvive(t *testing.T) {
	r, f := newRegistry(t, clock.Real(), fleet.Config{})
	static := []engine.Spec{{URL: "http://a:1"}, {URL: "http://b:1"}}
	reload := func() {
		t.Helper()
		if err := r.SetStatic(static, []string{"dns:n"}); err != nil {
			t.Fatal(err)
		}
	}
	reload()
	r.Sink("dns:n").Found([]discover.Found{at("http://c:1", "")})
	id := func(url string) kv.WorkerID { return kv.WorkerIDOf("default", url) }
	added, err := r.Add(engine.Spec{URL: "http://x:1", Model: "m"})
	if err != nil || added != id("http://x:1") {
		t.Fatal(added, err)
	}
	for _, err := range []error{r.SetDraining(id("http://b:1"), true), r.Remove(id("http://c:1"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		same(t, f, "x:1 admin suspect ", "a:1 config suspect ", "b:1 config draining admin")
		reload()
		r.Sink("dns:n").Found([]discover.Found{at("http://c:1", ""), at("http://b:1", "")})
		static[0].Model = "again" // another reload
		same(t, f, "x:1 admin suspect ", "a:1 config suspect ", "b:1 config+dns:n draining admin")
		r.Sink("dns:n").Found([]discover.Found{at("http://c:1", "")})
	}
	if d := r.Describe(); len(d.Added) != 1 || len(d.Removed) != 1 || len(d.Drained) != 1 {
		t.Errorf("decisions: %+v", d)
	}
	if err := r.SetDraining(id("http://b:1"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Add(engine.Spec{URL: "http://c:1"}); err != nil { // as it is listed
		t.Fatal(err)
	}
	if err := r.Remove(added); err != nil {
		t.Fatal(err)
	}
	same(t, f, "a:1 config suspect ", "b:1 config suspect ", "c:1 dns:n suspect ")
	if d := r.Describe(); len(d.Added)+len(d.Removed)+len(d.Drained) != 0 {
		t.Errorf("left over: %+v", d)
	}
	for _, err := range []error{r.Remove(added), r.SetDraining(added, true)} {
		if !errors.Is(err, fleet.ErrNoWorker) {
			t.Errorf("an unknown worker: %v", err)
		}
	}
	// Removed under one name, it does not come back under another.
	r.Sink("dns:n").Found([]discover.Found{at("http://a:1", "ns/a")})
	if err := r.Remove(id("http://a:1")); err != nil {
		t.Fatal(err)
	}
	same(t, f, "b:1 config suspect ")
}

// TestBR05_WhatSourcesTellIsChecked: a source passes the same checks as an
// operator does; what it may not tell is left out, the rest counts.
func TestBR05_WhatSourcesTellIsChecked(t *testing.T) {
	own := netip.MustParseAddrPort("127.0.0.1:8081")
	r, f := newRegistry(t, clock.Real(), fleet.Config{Guard: engine.Guard{Own: func(a netip.AddrPort) bool { return a == own }}})
	if err := r.SetStatic(nil, []string{"dns:n"}); err != nil {
		t.Fatal(err)
	}
	bad := []string{"http://169.254.169.254:80", "file:///etc/passwd", "http://u:p@h:1", "http://127.0.0.1:8081", "http://0.0.0.0:1"}
	found := []discover.Found{at("http://good:1", "")}
	for _, url := range bad {
		found = append(found, at(url, ""))
		if _, err := r.Add(engine.Spec{URL: url}); err == nil {
			t.Errorf("%s was added", url)
		}
		if err := r.SetStatic([]engine.Spec{{URL: url}}, []string{"dns:n"}); err == nil {
			t.Errorf("%s was configured", url)
		}
	}
	r.Sink("dns:n").Found(found)
	same(t, f, "good:1 dns:n suspect ")
	if s := r.Describe().Sources[1]; s.Workers != 1 || len(s.Refused) != len(bad) {
		t.Errorf("the source stands so: %+v", s)
	}
}

func TestReadyWaitsForTheSources(t *testing.T) {
	var now clock.Virtual
	r, f := newRegistry(t, &now, fleet.Config{})
	if err := r.SetStatic(nil, []string{"dns:n"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "dns:n") {
		t.Errorf("nobody told of anybody, and: %v", err)
	}
	r.Sink("dns:n").Failed(errors.New("no network"))
	if now.Advance(time.Hour); r.Ready() == nil || !f.View().Pending() {
		t.Error("a source that never saw is taken for one without workers")
	}
	r.Sink("dns:n").Found(nil)
	if err := r.Ready(); err != nil || f.View().Pending() {
		t.Errorf("there really is no worker, and: %v", err)
	}
	r.Sink("dns:n").Found([]discover.Found{at("http://a:1", "")})
	if r.Ready() == nil {
		t.Error("ready though no worker answers")
	}
	r.Sink("dns:n").Failed(errors.New("no network"))
	if s := r.Describe().Sources[1]; s.Workers != 1 || s.Fault != "no network" || s.Failures != 2 {
		t.Errorf("%+v", s)
	}
}

// A new instance is another worker; the word of one who can't tell instances
// changes nothing.
func TestInstanceMakesAnewWorker(t *testing.T) {
	r, f := newRegistry(t, clock.Real(), fleet.Config{})
	if err := r.SetStatic(nil, []string{"kubernetes:k"}); err != nil {
		t.Fatal(err)
	}
	tell := func(instance string, draining bool) *fleet.Member {
		w := at("http://a:1", "p")
		w.Instance, w.Draining = instance, draining
		r.Sink("kubernetes:k").Found([]discover.Found{w})
		return f.View().Members[0]
	}
	first := tell("", false)
	first.Ledger.Book(1, &fleet.Booking{PromptTokens: 5, Choices: 1})
	if tell("u/0", false) != first || tell("", false) != first || tell("u/0", true) != first {
		t.Error("the same instance made another member")
	}
	if g := first.Grade(0); g != fleet.Draining {
		t.Errorf("told to drain it is %v", g)
	}
	if tell("u/0", false); first.Grade(0) == fleet.Draining {
		t.Error("it drains for ever")
	}
	if second := tell("u/1", false); second == first || second.Ledger.Booked() != 0 || second.Target != first.Target {
		t.Error("another instance is the same member, or has its bookings")
	}
}

// Whatever is told and decided in whatever order, the fleet has what follows
// from the last word of each, one member a worker.
func TestRegistryFollowsTheLastWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, err := fleet.New(fleet.Config{}, fleet.Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: clock.Real(),
			Log: slog.New(slog.DiscardHandler)}, nil, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
		if err != nil {
			t.Fatal(err)
		}
		r := fleet.NewRegistry(f)
		names := []string{"file:f", "dns:d"}
		urls := []string{"http://a:1", "http://b:1", "http://c:1", "http://d:1"}
		last := map[string]map[string]bool{"config": {}, "file:f": {}, "dns:d": {}}
		removed, drained, added := map[string]bool{}, map[string]bool{}, map[string]bool{}
		if err := r.SetStatic(nil, names); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			url := rapid.SampledFrom(urls).Draw(t, "worker")
			id := kv.WorkerIDOf("default", url)
			present := !removed[url] && (added[url] || last["config"][url] || last["file:f"][url] || last["dns:d"][url])
			switch step := rapid.IntRange(0, 4).Draw(t, "step"); step {
			case 0, 1:
				source := rapid.SampledFrom([]string{"config", "file:f", "dns:d"}).Draw(t, "source")
				list := rapid.SliceOfNDistinct(rapid.SampledFrom(urls), 0, 4, rapid.ID).Draw(t, "list")
				last[source] = map[string]bool{}
				var specs []engine.Spec
				var found []discover.Found
				for _, u := range list {
					last[source][u] = true
					specs, found = append(specs, engine.Spec{URL: u}), append(found, at(u, ""))
				}
				if source != "config" {
					r.Sink(source).Found(found)
				} else if err := r.SetStatic(specs, names); err != nil {
					t.Fatal(err)
				}
			case 2:
				if err := r.SetDraining(id, true); (err == nil) != present {
					t.Fatalf("drain %s, present %v: %v", url, present, err)
				}
				drained[url] = drained[url] || present
			case 3:
				if err := r.Remove(id); (err == nil) != present {
					t.Fatalf("remove %s, present %v: %v", url, present, err)
				} else if present {
					removed[url] = last["config"][url] || last["file:f"][url] || last["dns:d"][url]
					delete(added, url)
					delete(drained, url)
				}
			case 4:
				if _, err := r.Add(engine.Spec{URL: url, Model: "m"}); err != nil {
					t.Fatal(err)
				}
				added[url] = true
				delete(removed, url)
			}
			members := map[string]*fleet.Member{}
			for _, m := range f.View().Members {
				if members[m.Worker.Spec.URL] != nil {
					t.Fatalf("%s is there twice", m.Worker.Spec.URL)
				}
				members[m.Worker.Spec.URL] = m
			}
			for _, u := range urls {
				want := !removed[u] && (added[u] || last["config"][u] || last["file:f"][u] || last["dns:d"][u])
				m := members[u]
				if (m != nil) != want {
					t.Fatalf("%s is there: %v, want %v", u, m != nil, want)
				}
				if m != nil && (m.Grade(0) == fleet.Draining) != drained[u] {
					t.Fatalf("%s drains: %v", u, !drained[u])
				}
			}
		}
	})
}
