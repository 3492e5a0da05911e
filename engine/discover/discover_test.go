package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard is a Sink that keeps what it is told.
type heard struct {
	mu     sync.Mutex
	lists  [][]string
	faults []string
}

func (h *heard) Found(all []Found) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var urls []string
	for _, f := range all {
		urls = append(urls, f.Spec.URL)
	}
	h.lists = append(h.lists, urls)
}

func (h *heard) Failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, err.Error())
}

// last returns the last list, and how many there were, and faults.
func (h *heard) last() (list string, lists, faults int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.lists); n > 0 {
		list = strings.Join(h.lists[n-1], " ")
	}
	return list, len(h.lists), len(h.faults)
}

// in runs a source in a bubble of virtual time.
func in(t *testing.T, run func(context.Context, Sink), test func(*testing.T, *heard)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := new(heard)
		var wg sync.WaitGroup
		wg.Go(func() { run(ctx, h) })
		test(t, h)
		cancel()
		wg.Wait()
	})
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	in(t, (&fileSource{path, clock.Real()}).run, func(t *testing.T, h *heard) {
		expect := func(list string, lists, faults int) {
			t.Helper()
			time.Sleep(2*filePoll + filePoll/2)
			synctest.Wait()
			if l, n, f := h.last(); l != list || n != lists || f != faults {
				t.Fatalf("%q, list %d, %d faults; want %q, %d, %d", l, n, f, list, lists, faults)
			}
		}
		expect("", 0, 1) // not there yet
		expect("", 0, 1) // and told once
		put(t, path, "- http://a:1,engine=vllm\n- url: http://b:1\n  dp: 2\n")
		expect("http://a:1 http://b:1", 1, 1)
		expect("http://a:1 http://b:1", 1, 1)
		for i, broken := range []string{"", "- http://a:1\n- url: htt", "workers", "- {url: http://a:1, nonsense: 1}", "[http://a:1, http://a:1]", "{workers: [http://a:1], more: 1}", "null"} {
			put(t, path, broken)
			expect("http://a:1 http://b:1", 1, 2+i)
		}
		put(t, path, `{"workers": [{"url": "http://c:1"}]}`)
		expect("http://c:1", 2, 8)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		expect("http://c:1", 2, 9)
		put(t, path, "[]")
		expect("", 3, 9)
	})
}

// A file that changes with each look is being written: nothing of it is taken.
func TestFileBeingWrittenIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	put(t, path, "[http://a:1]")
	in(t, (&fileSource{path, clock.Real()}).run, func(t *testing.T, h *heard) {
		synctest.Wait()
		for i := range 20 {
			put(t, path, strings.Repeat("- http://b:1\n", i+1))
			time.Sleep(filePoll)
			synctest.Wait()
			if l, n, f := h.last(); l != "http://a:1" || n != 1 || f != 0 {
				t.Fatalf("after %d writes: %q, list %d, %d faults", i, l, n, f)
			}
		}
	})
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"[]", "- http://a:1\n", `[{"url":"http://a:1","dp":3}]`, "workers: [http://a:1]", "- url: x\n  token: t", "&a [*a]", "- {<<: {url: 'http://a:1'}}", "\x00", "- - -"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		specs, err := ParseList(text)
		if err != nil && specs != nil {
			t.Fatal("an error and a list")
		}
		for _, s := range specs {
			again, err := s.Canonical()
			if err != nil || again != s {
				t.Fatalf("%+v is not canonical: %v", s, err)
			}
		}
	})
}

// names is a Resolver of a test.
type names struct {
	mu    sync.Mutex
	addrs []string
	srv   []*net.SRV
	err   error
}

func (n *names) set(err error, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err, n.addrs = err, addrs
}

func (n *names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []netip.Addr
	for _, a := range n.addrs {
		all = append(all, netip.MustParseAddr(a))
	}
	return all, n.err
}

func (n *names) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return "", slices.Clone(n.srv), n.err
}

// TestBR46_NamesAreLookedUpAgain: a headless name is one worker an address, a
// change is seen within the interval, a blip keeps the last good list for a
// bounded time.
func TestBR46_NamesAreLookedUpAgain(t *testing.T) {
	n := new(names)
	cfg := Config{DNS: []DNSConfig{{Name: "vllm.ns.svc", Port: 8000, Pool: PoolConfig{EventsPort: 5557, Engine: "vllm"}}}}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s := cfg.Sources(n, clock.Real())[0]
	if s.Name != "dns:vllm.ns.svc:8000" {
		t.Errorf("its name is %s", s.Name)
	}
	in(t, s.Run, func(t *testing.T, h *heard) {
		pass := func(d time.Duration, list string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if l, _, _ := h.last(); l != list {
				t.Fatalf("the list is %q, want %q", l, list)
			}
		}
		n.set(nil, "10.0.0.1")
		pass(5100*time.Millisecond, "http://10.0.0.1:8000")
		n.set(nil, "10.0.0.2")
		pass(5*time.Second, "http://10.0.0.2:8000")
		three := "http://10.0.0.1:8000 http://10.0.0.2:8000 http://10.0.0.3:8000"
		n.set(nil, "10.0.0.3", "fd00::1", "10.0.0.1", "::ffff:10.0.0.2", "10.0.0.1")
		pass(5*time.Second, three)
		n.set(&net.DNSError{Err: "no such host", IsNotFound: true})
		pass(30*time.Second, three)
		n.set(nil, "10.0.0.1")
		pass(5*time.Second, "http://10.0.0.1:8000")
		n.set(errors.New("server misbehaving"))
		pass(59*time.Second, "http://10.0.0.1:8000")
		pass(10*time.Second, "") // nobody is there for all we know
		n.set(nil, "fd00::1")
		pass(5*time.Second, "http://[fd00::1]:8000")
	})
}

// A name that is not there at all may be a service without endpoints; one that
// could never be looked up says nothing.
func TestNameThatNeverWasThere(t *testing.T) {
	for _, c := range []struct {
		err   error
		lists int
	}{{&net.DNSError{Err: "no such host", IsNotFound: true}, 1}, {errors.New("server misbehaving"), 0}} {
		n := new(names)
		n.set(c.err)
		s := Config{DNS: []DNSConfig{{Name: "n", Port: 1}}}.Sources(n, clock.Real())[0]
		in(t, s.Run, func(t *testing.T, h *heard) {
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if _, lists, faults := h.last(); lists != c.lists || faults < 10 {
				t.Errorf("%v: %d lists, %d faults", c.err, lists, faults)
			}
		})
	}
}

func TestSRVRecords(t *testing.T) {
	n := &names{srv: []*net.SRV{{Target: "w-1.vllm.ns.svc.", Port: 8001}, {Target: "w-0.vllm.ns.svc.", Port: 8000}}}
	s := Config{DNS: []DNSConfig{{Name: "_http._tcp.vllm.ns.svc", SRV: true, Pool: PoolConfig{Scheme: "https"}}}}.Sources(n, clock.Real())[0]
	in(t, s.Run, func(t *testing.T, h *heard) {
		synctest.Wait()
		if l, _, _ := h.last(); l != "https://w-0.vllm.ns.svc:8000 https://w-1.vllm.ns.svc:8001" {
			t.Errorf("the list is %q", l)
		}
	})
}

func TestConfigProblems(t *testing.T) {
	for want, c := range map[string]Config{
		"":                         {Files: []string{"a", "b"}, DNS: []DNSConfig{{Name: "n", Port: 1}, {Name: "n", Port: 2}, {Name: "n", SRV: true}}},
		"files[1]: a is there":     {Files: []string{"a", "a"}},
		"files[0]: want":           {Files: []string{""}},
		"dns[0]: name is":          {DNS: []DNSConfig{{Name: "http://n", Port: 1}}},
		"dns[0]: port is 0":        {DNS: []DNSConfig{{Name: "n"}}},
		"dns[0]: port: SRV":        {DNS: []DNSConfig{{Name: "n", SRV: true, Port: 1}}},
		"dns[1]: n:1 is there":     {DNS: []DNSConfig{{Name: "n", Port: 1}, {Name: "n", Port: 1}}},
		"dns[0]: interval is":      {DNS: []DNSConfig{{Name: "n", Port: 1, Interval: time.Millisecond}}},
		"dns[0]: keep_for is":      {DNS: []DNSConfig{{Name: "n", Port: 1, KeepFor: -1}}},
		"dns[0]: pool: engine":     {DNS: []DNSConfig{{Name: "n", Port: 1, Pool: PoolConfig{Engine: "x"}}}},
		"dns[0]: pool: replay=":    {DNS: []DNSConfig{{Name: "n", Port: 1, Pool: PoolConfig{ReplayPort: 5}}}},
		"kubernetes.server: URL":   {Kubernetes: KubernetesConfig{Server: "ftp://k"}},
		"kubernetes.resync is 1ms": {Kubernetes: KubernetesConfig{Resync: time.Millisecond}},
		"kubernetes.pods[0]: want": {Kubernetes: KubernetesConfig{Pods: []PodsConfig{{Namespace: "n"}}}},
		"kubernetes.pods[0]: want either selector or service": {Kubernetes: KubernetesConfig{Pods: []PodsConfig{{Selector: "a", Service: "b"}}}},
		"kubernetes.pods[0]: namespace":                       {Kubernetes: KubernetesConfig{Pods: []PodsConfig{{Namespace: "../n", Selector: "a"}}}},
		"kubernetes.pods[1]: n/a is":                          {Kubernetes: KubernetesConfig{Pods: []PodsConfig{{Namespace: "n", Selector: "a"}, {Namespace: "n", Selector: "a"}}}},
		"kubernetes.pods[0]: port is 0":                       {Kubernetes: KubernetesConfig{Pods: []PodsConfig{{Selector: "a", Port: "0"}}}},
		"kubernetes.pods[0]: pool: 99999 data":                {Kubernetes: KubernetesConfig{Pods: []PodsConfig{{Selector: "a", Pool: PoolConfig{Ranks: 99999}}}}},
		"dns[0]: pool: URL":                                   {DNS: []DNSConfig{{Name: "n", Port: 1, Pool: PoolConfig{Scheme: "ftp"}}}},
	} {
		err := c.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%+v gave %v, want %q", c, err, want)
		}
	}
}

// Sources that stay over a change of the configuration are not disturbed; one
// that changes ends before its successor begins.
func TestRunnerKeepsWhatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, fmt.Sprintf(format, args...))
		}
		source := func(name string, settings int) Source {
			return Source{Name: name, Settings: settings, Run: func(ctx context.Context, sink Sink) {
				note("%s%d begins", name, settings)
				<-ctx.Done()
				time.Sleep(time.Second)
				note("%s%d ends", name, settings)
			}}
		}
		h := new(heard)
		r := Runner{Sink: func(string) Sink { return h }}
		r.Set([]Source{source("a", 1), source("b", 1)})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.Run(ctx) })
		settle := func(atOnce bool, want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if atOnce {
				slices.Sort(events)
			}
			if !slices.Equal(events, want) {
				t.Errorf("%q, want %q", events, want)
			}
			events = nil
		}
		settle(true, "a1 begins", "b1 begins")
		r.Set([]Source{source("a", 1), source("b", 1)})
		settle(false)
		r.Set([]Source{source("a", 2), source("b", 1)})
		settle(false, "a1 ends", "a2 begins")
		r.Set([]Source{source("b", 1)})
		settle(false, "a2 ends")
		r.Set([]Source{source("b", 1), source("a", 2)})
		settle(false, "a2 begins")
		cancel()
		wg.Wait()
		r.Set([]Source{source("c", 1)}) // after the end nobody begins
		settle(true, "a2 ends", "b1 ends")
	})
}

func TestParseSpecReadsOneWorker(t *testing.T) {
	want := engine.Spec{URL: "http://h:1", Engine: "vllm", Ranks: 2, Token: "t"}
	for _, text := range []string{`{"url":"http://H:1/","engine":"vllm","dp":2,"token":"t"}`, "url: http://h:1\nengine: vllm\ndp: 2\ntoken: t"} {
		if got, err := ParseSpec([]byte(text)); err != nil || got != want {
			t.Errorf("%s gave %+v, %v", text, got, err)
		}
	}
	if _, err := ParseSpec([]byte("url: http://h:1\ntoken: [s3cret]\nbad: s3cret")); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error is %v", err)
	}
}

// The largest list that is taken is read in reasonable time.
func BenchmarkParseList(b *testing.B) {
	var text strings.Builder
	for i := range MaxWorkers {
		fmt.Fprintf(&text, "- url: http://w%d:8000\n  engine: vllm\n", i)
	}
	for b.Loop() {
		if specs, err := ParseList([]byte(text.String())); err != nil || len(specs) != MaxWorkers {
			b.Fatal(len(specs), err)
		}
	}
}
