package load

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// relayed starts a plain relay in the router's place, which spoils answers if
// told so.
func relayed(spoil bool) func(context.Context, []string) (*Router, error) {
	return func(_ context.Context, workers []string) (*Router, error) {
		upstream := &http.Transport{DisableCompression: true}
		addr, _, _ := strings.Cut(strings.TrimPrefix(workers[0], "http://"), ",")
		h := relayTo(addr, upstream)
		if spoil {
			h = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
		}
		s := httptest.NewServer(h)
		return &Router{URL: s.URL, Close: func() error { s.Close(); upstream.CloseIdleConnections(); return nil }}, nil
	}
}

func TestBenchGatewayMeasuresEveryWay(t *testing.T) {
	var last float64
	r, err := BenchGateway(t.Context(), BenchConfig{Duration: 400 * time.Millisecond, Connections: 2, StartRouter: relayed(false),
		Progress: func(share float64) { last = max(last, share) }})
	if err != nil {
		t.Fatal(err)
	}
	if r.Rounds == 0 || last != 1 || !(r.DirectP50Micros4K > 0) || !(r.DirectP50Micros500K > r.DirectP50Micros4K) {
		t.Errorf("%+v, progress %v", r, last)
	}
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(r); err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(out.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"added_p50_us_4k", "added_p99_us_4k", "added_p50_us_64k", "added_p50_us_500k",
		"calibration_relay_p50_us_4k", "calibration_relay_p50_us_64k", "calibration_relay_p50_us_500k"} {
		if v, ok := keys[key].(float64); !ok || v < 0 {
			t.Errorf("%s is %v", key, keys[key])
		}
	}
	if _, ok := keys["rps_per_core"]; !ok {
		t.Errorf("no rps_per_core in %s", out.String())
	}
	out.Reset()
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "500 KB") || !strings.Contains(out.String(), "targets:") {
		t.Errorf("table: %v\n%s", err, out.String())
	}
}

func TestBenchGatewayWantsTheWorkersAnswers(t *testing.T) {
	_, err := BenchGateway(t.Context(), BenchConfig{Duration: time.Second, StartRouter: relayed(true)})
	if err == nil || !strings.Contains(err.Error(), "answer") {
		t.Errorf("a router that makes answers up was measured: %v", err)
	}
}

func TestBenchRequestsHaveTheirSize(t *testing.T) {
	for _, size := range benchSizes {
		head, body, _ := strings.Cut(string(benchRequest(size, 1)), "\r\n\r\n")
		if len(body) < size || len(body) > size+size/3 || !json.Valid([]byte(body)) || !strings.HasPrefix(head, "POST ") {
			t.Errorf("a body of %d bytes for %d", len(body), size)
		}
		if string(benchRequest(size, 1)) != string(benchRequest(size, 1)) || string(benchRequest(size, 1)) == string(benchRequest(size, 2)) {
			t.Error("requests must differ by their number alone")
		}
	}
}
