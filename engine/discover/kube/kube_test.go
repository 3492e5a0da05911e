package kube_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/engine/discover/kube"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ground is a source that follows a stand-in of the API.
type ground struct {
	t    *testing.T
	kube *testkit.Kube

	mu     sync.Mutex
	found  []discover.Found
	lists  int
	faults []string
	change chan struct{}
}

func (g *ground) Found(all []discover.Found) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.found, g.lists = all, g.lists+1
	g.told()
}

func (g *ground) Failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, err.Error())
	g.told()
}

func (g *ground) told() {
	close(g.change)
	g.change = make(chan struct{})
}

// workers says what was found: "name url instance why", in order.
func (g *ground) workers() []string {
	var all []string
	for _, f := range g.found {
		line := fmt.Sprintf("%s %s %s", f.Spec.ID, strings.TrimPrefix(f.Spec.URL, "http://"), f.Instance)
		if f.Draining {
			line += " " + f.Why
		}
		all = append(all, line)
	}
	return all
}

// await waits until the workers found are these.
func (g *ground) await(want ...string) {
	g.t.Helper()
	g.until(fmt.Sprintf("%q", want), func() bool { return strings.Join(g.workers(), "\n") == strings.Join(want, "\n") })
}

func (g *ground) until(what string, ok func() bool) {
	g.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		g.mu.Lock()
		done, change, now := ok(), g.change, g.workers()
		g.mu.Unlock()
		if done {
			return
		}
		select {
		case <-change:
		case <-time.After(10 * time.Millisecond): // what is waited for may be the stand-in's state
		case <-deadline:
			g.t.Fatalf("never %s; found %q, faults %q", what, now, g.faults)
		}
	}
}

// watching waits until a watch is open that began after n others.
func (g *ground) watching(n int) {
	g.t.Helper()
	g.until("a watch", func() bool { _, opened, open := g.kube.Counts(); return opened > n && open > 0 })
}

func (g *ground) opened() int {
	_, opened, _ := g.kube.Counts()
	return opened
}

// newGround starts a source; resync is so long that watches alone tell of
// changes, save where a test says otherwise.
func newGround(t *testing.T, pods discover.PodsConfig, resync time.Duration, begin func(*testkit.Kube)) *ground {
	t.Helper()
	g := &ground{t: t, kube: testkit.NewKube(t), change: make(chan struct{})}
	if begin != nil {
		begin(g.kube)
	}
	cfg := discover.KubernetesConfig{Server: g.kube.URL, TokenFile: g.kube.TokenFile, CAFile: g.kube.CAFile, Resync: resync, Pods: []discover.PodsConfig{pods}}
	s := kube.Sources(cfg, clock.Real(), slog.New(slog.DiscardHandler))[0]
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx, g) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return g
}

const never = time.Hour

var engines = discover.PodsConfig{Selector: "app=vllm", Port: "http"}

func pod(name string) testkit.Pod {
	return testkit.Pod{Name: name, UID: "u-" + name, IP: "10.0.0." + name[len(name)-1:], Port: 8000, Labels: map[string]string{"app": "vllm"}}
}

// TestBR42_WhatIsNotReadyGetsNothingNew: readiness, labels, termination and
// restarts of a pod show at once.
func TestBR42_WhatIsNotReadyGetsNothingNew(t *testing.T) {
	g := newGround(t, engines, never, func(k *testkit.Kube) {
		k.SetPod(pod("p1"))
		other := pod("q2")
		other.Labels = nil
		k.SetPod(other)
	})
	g.await("ns/p1:8000 10.0.0.1:8000 u-p1/0")
	g.watching(0)
	p := pod("p1")
	for _, step := range []struct {
		do   func()
		want []string
	}{
		{func() { p.NotReady = true }, []string{"ns/p1:8000 10.0.0.1:8000 u-p1/0 not ready"}},
		{func() { p.NotReady = false }, []string{"ns/p1:8000 10.0.0.1:8000 u-p1/0"}},
		{func() { p.Labels = map[string]string{"app": "other"} }, nil},
		{func() { p.Labels = map[string]string{"app": "vllm"} }, []string{"ns/p1:8000 10.0.0.1:8000 u-p1/0"}},
		{func() { p.Restarts = 1 }, []string{"ns/p1:8000 10.0.0.1:8000 u-p1/1"}},
		{func() { p.IP = "10.0.0.9" }, []string{"ns/p1:8000 10.0.0.9:8000 u-p1/1"}},
		{func() { p.IP = "" }, nil},
		{func() { p.IP = "10.0.0.1" }, []string{"ns/p1:8000 10.0.0.1:8000 u-p1/1"}},
		{func() { p.Terminating = true }, []string{"ns/p1:8000 10.0.0.1:8000 u-p1/1 terminating"}},
		{func() { p.Phase = "Succeeded" }, nil},
	} {
		step.do()
		g.kube.SetPod(p)
		g.await(step.want...)
	}
	g.kube.Delete("pods", "p1")
	p = pod("p1")
	p.UID = "another"
	g.kube.SetPod(p)
	g.await("ns/p1:8000 10.0.0.1:8000 another/0")
	if lists, opened, _ := g.kube.Counts(); lists != 1 || opened != 1 {
		t.Errorf("%d lists and %d watches: one of each tells all", lists, opened)
	}
}

// TestBR29_AMissedDeleteIsMadeUpFor: a pod whose deletion no watch told is gone
// after the next list: when the watch breaks, when the API has forgotten, and
// after the time to list anew at the latest.
func TestBR29_AMissedDeleteIsMadeUpFor(t *testing.T) {
	p1, p2 := "ns/p1:8000 10.0.0.1:8000 u-p1/0", "ns/p2:8000 10.0.0.2:8000 u-p2/0"
	both := func(k *testkit.Kube) {
		k.SetPod(pod("p1"))
		k.SetPod(pod("p2"))
	}
	miss := func(g *ground) {
		g.kube.Lose(true)
		g.kube.Delete("pods", "p1")
		g.kube.Lose(false)
	}
	t.Run("the watch breaks", func(t *testing.T) {
		g := newGround(t, engines, never, both)
		g.await(p1, p2)
		g.watching(0)
		miss(g)
		g.kube.CutWatches()
		g.await(p2)
	})
	t.Run("410 when it watches again", func(t *testing.T) {
		g := newGround(t, engines, never, both)
		g.await(p1, p2)
		g.watching(0)
		miss(g)
		g.kube.Forget()
		g.kube.CutWatches()
		g.await(p2)
		g.watching(1)
	})
	t.Run("410 in the watch", func(t *testing.T) {
		g := newGround(t, engines, never, both)
		g.await(p1, p2)
		g.watching(0)
		miss(g)
		g.kube.Tell("pods", "ERROR", map[string]any{"kind": "Status", "status": "Failure", "code": 410, "message": "too old resource version"})
		g.await(p2)
	})
	t.Run("nothing breaks", func(t *testing.T) {
		g := newGround(t, engines, 200*time.Millisecond, both)
		g.await(p1, p2)
		miss(g)
		g.await(p2)
	})
	t.Run("its address is another pod's", func(t *testing.T) {
		g := newGround(t, engines, never, both)
		g.await(p1, p2)
		g.watching(0)
		g.kube.Lose(true)
		g.kube.Delete("pods", "p1")
		g.kube.Lose(false)
		next := pod("p3")
		next.IP, next.Born, next.NotReady = "10.0.0.1", time.Unix(100, 0), true
		g.kube.SetPod(next)
		g.await(p2, "ns/p3:8000 10.0.0.1:8000 u-p3/0 not ready")
	})
	t.Run("the tombstone is of another life", func(t *testing.T) {
		g := newGround(t, engines, never, both)
		g.await(p1, p2)
		g.watching(0)
		g.kube.Tell("pods", "DELETED", map[string]any{"metadata": map[string]any{"name": "p1", "namespace": "ns", "uid": "older"}})
		g.kube.Tell("pods", "DELETED", map[string]any{"metadata": map[string]any{"name": "p2", "namespace": "ns"}})
		g.await(p1)
	})
}

// While the API is away, or refuses, the last list stays; then all is well again
// without anybody's help, with a token and certificates that were replaced.
func TestApiThatComesAndGoes(t *testing.T) {
	one := "ns/p1:8000 10.0.0.1:8000 u-p1/0"
	g := newGround(t, engines, 150*time.Millisecond, func(k *testkit.Kube) { k.SetPod(pod("p1")) })
	g.await(one)
	for _, status := range []int{500, 403, 429} {
		g.mu.Lock()
		g.faults = nil
		g.mu.Unlock()
		g.kube.Break(status)
		g.kube.CutWatches()
		g.until("a fault", func() bool {
			return len(g.faults) > 0 && strings.Contains(g.faults[0], fmt.Sprintf("status %d: refused by the test", status))
		})
		g.await(one)
		g.kube.Break(0)
		lists := g.lists
		g.until("another list", func() bool { return g.lists > lists })
	}
	g.kube.Rotate(t, "second-token")
	g.kube.SetPod(pod("p2"))
	g.await(one, "ns/p2:8000 10.0.0.2:8000 u-p2/0")
	for _, fault := range g.faults {
		if strings.Contains(fault, "token") && strings.Contains(fault, "second") {
			t.Errorf("a fault shows the token: %s", fault)
		}
	}
}

// Bookmarks move the version that a list must not be older than, and change
// nothing else; a scaled-down set is empty, and pages are put together.
func TestBookmarksPagesAndNobody(t *testing.T) {
	g := newGround(t, engines, never, func(k *testkit.Kube) { k.SetPages(2) })
	g.until("an empty list", func() bool { return g.lists == 1 && len(g.found) == 0 })
	g.watching(0)
	g.kube.Tell("pods", "BOOKMARK", map[string]any{"metadata": map[string]any{"resourceVersion": "7"}})
	var want []string
	for i := 1; i <= 5; i++ {
		g.kube.SetPod(pod(fmt.Sprint("p", i)))
		want = append(want, fmt.Sprintf("ns/p%d:8000 10.0.0.%d:8000 u-p%d/0", i, i, i))
	}
	g.await(want...)
	before := g.opened()
	g.kube.CutWatches()
	g.watching(before)
	g.await(want...)
	for i := 1; i <= 5; i++ {
		g.kube.Delete("pods", fmt.Sprint("p", i))
	}
	g.await()
}

// What a pod says of itself goes before what its pool says; what can't be is
// left out, and the others stay.
func TestAnnotations(t *testing.T) {
	pods := engines
	pods.Pool = discover.PoolConfig{Engine: "vllm", EventsPort: 5557, ReplayPort: 5558, Model: "pool", Token: "t"}
	g := newGround(t, pods, never, func(k *testkit.Kube) {
		p := pod("p1")
		p.Annotations = map[string]string{"rhizome.dev/model": "mine", "rhizome.dev/events-port": "6000", "rhizome.dev/replay-port": "6100", "rhizome.dev/dp": "4"}
		p.Labels = map[string]string{"app": "vllm", "rhizome.dev/engine": "sglang", "rhizome.dev/preset": "llama3-8b-h100"}
		k.SetPod(p)
		bad := pod("p2")
		bad.Annotations = map[string]string{"rhizome.dev/dp": "many"}
		k.SetPod(bad)
		k.SetPod(pod("p3"))
	})
	g.until("two workers", func() bool { return len(g.found) == 2 })
	one, three := g.found[0].Spec, g.found[1].Spec
	if one.Engine != "sglang" || one.Model != "mine" || one.Events != "tcp://10.0.0.1:6000" || one.Replay != "tcp://10.0.0.1:6100" || one.Ranks != 4 ||
		one.Preset != "llama3-8b-h100" || one.Token != "t" {
		t.Errorf("the annotated one is %+v", one)
	}
	if three.Engine != "vllm" || three.Model != "pool" || three.Events != "tcp://10.0.0.3:5557" || three.ID != "ns/p3:8000" {
		t.Errorf("the plain one is %+v", three)
	}
}

// Endpoints of a Service, in slices that overlap and of two families.
func TestEndpointSlices(t *testing.T) {
	endpoint := func(address, pod string, conditions map[string]any) map[string]any {
		return map[string]any{"addresses": []string{address}, "conditions": conditions, "targetRef": map[string]any{"kind": "Pod", "name": pod, "uid": "u-" + pod}}
	}
	slice := func(name, family string, endpoints ...any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name, "namespace": "other", "labels": map[string]string{"kubernetes.io/service-name": "vllm"}},
			"addressType": family, "ports": []any{map[string]any{"name": "http", "port": 8000}, map[string]any{"name": "metrics", "port": 9}}, "endpoints": endpoints}
	}
	yes, no := map[string]any{"ready": true}, map[string]any{"ready": false}
	ending := map[string]any{"ready": false, "serving": true, "terminating": true}
	g := newGround(t, discover.PodsConfig{Namespace: "other", Service: "vllm", Port: "http"}, never, func(k *testkit.Kube) {
		k.Set("endpointslices", slice("a", "IPv4", endpoint("10.0.0.1", "p1", yes), endpoint("10.0.0.2", "p2", no), endpoint("10.0.0.3", "p3", ending)))
		k.Set("endpointslices", slice("b", "IPv4", endpoint("10.0.0.2", "p2", no), endpoint("10.0.0.4", "p4", map[string]any{})))
		k.Set("endpointslices", slice("c", "IPv6", endpoint("fd00::1", "p1", yes)))
	})
	g.await("other/p1:8000 10.0.0.1:8000 u-p1", "other/p2:8000 10.0.0.2:8000 u-p2 not ready", "other/p3:8000 10.0.0.3:8000 u-p3 terminating", "other/p4:8000 10.0.0.4:8000 u-p4")
	g.watching(0)
	g.kube.Set("endpointslices", slice("b", "IPv4", endpoint("10.0.0.2", "p2", yes)))
	g.kube.Set("endpointslices", slice("a", "IPv4", endpoint("10.0.0.1", "p1", yes)))
	g.await("other/p1:8000 10.0.0.1:8000 u-p1", "other/p2:8000 10.0.0.2:8000 u-p2")
}
