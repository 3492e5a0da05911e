package load_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/workload"
)

// roundRobin is a router that knows nothing.
func roundRobin(t *testing.T, lines []string) *httptest.Server {
	var proxies []http.Handler
	for _, l := range lines {
		base, _, _ := strings.Cut(l, ",")
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		p := httputil.NewSingleHostReverseProxy(u)
		p.FlushInterval = -1
		proxies = append(proxies, p)
	}
	var n atomic.Uint64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The proxy must not pass on the server's own body: a transport reads a
		// body once more after its last byte, and by then the server may have
		// closed it because the answer began, which breaks the answer off.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxies[n.Add(1)%uint64(len(proxies))].ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return srv
}

// conversation is n turns of one conversation, each a block longer than the one
// before.
func conversation(n int) []workload.Request {
	reqs := make([]workload.Request, n)
	var ids []uint64
	for i := range reqs {
		ids = append(ids, uint64(i))
		reqs[i] = workload.Request{
			At: time.Duration(i) * time.Second, OutputTokens: 20,
			InputTokens: len(ids)*workload.BlockTokens + 100,
			HashIDs:     append(slices.Clone(ids), uint64(1000+i)),
		}
	}
	return reqs
}

// One worker serves what an infinite cache would have, to within its blocks of
// 16 tokens in place of 512 and the chat template; since turns are held, no
// prompt comes before the one it builds on has been computed.
func TestReplayAgainstEmulatedWorker(t *testing.T) {
	const speed = 200
	group, err := emulator.StartGroup(t.Context(), emulator.GroupConfig{AnyPorts: true, Config: emulator.Config{Speedup: speed}})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	trace := conversation(12)
	for _, tokens := range []bool{false, true} {
		report, err := load.Replay(t.Context(), load.ReplayConfig{
			Trace: trace, Targets: []load.Target{{Name: "ours", URL: group.Workers()[0].URL()}},
			Speed: speed, MaxOutput: 4, TokenPrompts: tokens, Hold: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		m := report.Ours
		if len(report.Notes) > 0 {
			t.Errorf("tokens %v: notes %q", tokens, report.Notes)
		}
		if m.Errors != 0 || m.Requests != len(trace) || m.OutputTokens != int64(4*len(trace)) {
			t.Fatalf("tokens %v: %+v, notes %q", tokens, m, report.Notes)
		}
		if d := m.HitShare - report.InfiniteCacheShare; d < -0.01 || d > 0.01 {
			t.Errorf("tokens %v: hit share %v, bound %v", tokens, m.HitShare, report.InfiniteCacheShare)
		}
		if !(m.Utilisation > 0 && m.Utilisation <= 1) || m.Workers != 1 || !(m.TTFTMeanMillis > 10) {
			t.Errorf("tokens %v: %+v", tokens, m)
		}
	}
}

func TestDemoWithEmulatedWorkers(t *testing.T) {
	const speed = 100
	var out bytes.Buffer
	sum, err := load.Demo(t.Context(), load.DemoConfig{
		Workers: 2, Duration: 700 * time.Millisecond, Once: true, Speedup: speed, Out: &out, JSON: true,
		StartWorkers: load.EmulatedWorkers(emulator.GroupConfig{AnyPorts: true, Config: emulator.Config{Speedup: speed}}),
		StartRouter: func(_ context.Context, lines []string) (*load.Router, error) {
			srv := roundRobin(t, lines)
			return &load.Router{URL: srv.URL, Stats: func() load.RouterStats { return load.RouterStats{} }}, nil
		},
	})
	if err != nil || sum.Failed != 0 || sum.Requests < 10 || sum.HitHBMTokens == 0 || !sum.TTFTMeanMillis.Known() {
		t.Errorf("%+v, %v", sum, err)
	}
}
