package emulator

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
)

func TestGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g, err := StartGroup(ctx, GroupConfig{Config: Config{Speedup: 100}, Workers: 3, AnyPorts: true})
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]bool{}
	for i, w := range g.Workers() {
		c := complete(t, w.URL()+"/v1/completions", obj{"prompt": "hello", "max_tokens": 4})
		answers[c.Choices[0].Text] = true
		if spec := g.Specs()[i]; !strings.HasPrefix(spec, "http://127.0.0.1:") || !strings.Contains(spec, ",events=tcp://127.0.0.1:") || !strings.Contains(spec, ",replay=tcp://127.0.0.1:") {
			t.Errorf("spec %q", spec)
		}
		if w.Name() != "w"+string(rune('0'+i)) {
			t.Errorf("worker %d is called %q", i, w.Name())
		}
	}
	if len(answers) != 1 {
		t.Errorf("workers give %d answers to one request", len(answers))
	}
	for _, st := range g.Stats() {
		if st.Finished != 1 || st.BusyMicros < 21400 || st.ClockMicros < st.BusyMicros || st.HBM.CapacityBlocks != 28125 {
			t.Errorf("stats %+v", st)
		}
	}
	url := g.Workers()[0].URL()
	cancel() // the end of the context is enough
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := postWith(client(t), url+"/v1/completions", "{}"); err == nil {
		t.Error("a closed worker answers")
	}
	if st := g.Workers()[0].Stats(); st.Finished != 1 {
		t.Errorf("last stats %+v", st)
	}
}

func TestGroupPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if _, err := StartGroup(t.Context(), GroupConfig{BasePort: port, EventsBase: port + 1}); err == nil {
		t.Error("started on a port that is taken")
	}
	for _, n := range []int{-1, 501} {
		if _, err := StartGroup(t.Context(), GroupConfig{Workers: n}); err == nil {
			t.Errorf("%d workers were started", n)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	for _, c := range []Config{
		{Speedup: -1}, {EventForm: "xml"}, {MaxModelLen: 1 << 30}, {MaxRequests: -1}, {PoolTokens: 3}, {Addr: "nowhere:x"}, {EventsAddr: "nowhere:x"}, {ReplayAddr: "nowhere:x"},
	} {
		if w, err := Start(t.Context(), c); err == nil {
			t.Errorf("%+v was accepted", c)
			w.Close()
		}
	}
}

func TestTooManyRequests(t *testing.T) {
	w := start(t, func(c *Config) { c.MaxRequests, c.Speedup = 1, 1 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", w.URL()+"/v1/completions", strings.NewReader(`{"prompt":"x","stream":true,"max_tokens":9000}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res, raw := post(t, w.URL()+"/v1/completions", obj{"prompt": "x"}); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %s", res.Status, raw)
	}
}

// Modelled time follows the wall: a prompt takes its modelled time, divided by
// the speedup, and not less.
func TestSpeedup(t *testing.T) {
	const speedup = 10
	w := start(t, func(c *Config) {
		c.Speedup = speedup
		c.Preset.Linear = model.Linear{A: 1e6}
	})
	began := time.Now()
	res, _ := post(t, w.URL()+"/v1/completions", obj{"prompt": "x", "max_tokens": 1})
	if took := time.Since(began); took < time.Second/speedup {
		t.Errorf("an iteration of 1 s took %v at speedup 10", took)
	}
	if busy := res.Header.Get(HeaderBusy); busy != "1000000" {
		t.Errorf("busy %s", busy)
	}
}

func TestAlarms(t *testing.T) {
	for name, a := range map[string]alarm{"precise": newAlarm(), "portable": newTimerAlarm()} {
		for _, d := range []time.Duration{-1, 0, 2 * time.Millisecond} {
			began := time.Now()
			a.set(time.Hour)
			a.set(d)
			<-a.rings()
			if took := time.Since(began); took < d {
				t.Errorf("%s: set to %v, rang after %v", name, d, took)
			}
		}
		a.set(time.Hour)
		a.stop()
		a.close()
	}
}
