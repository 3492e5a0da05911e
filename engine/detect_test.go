package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rhizome-router/rhizome/engine/zmtp"
)

// pages is a worker that has these pages and no others; "" is status 500.
func pages(t testing.TB, pages map[string]string) *Worker {
	t.Helper()
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		switch body, ok := pages[r.URL.Path]; {
		case !ok:
			http.NotFound(rw, r)
		case body == "":
			http.Error(rw, "oops", http.StatusInternalServerError)
		default:
			io.WriteString(rw, body)
		}
	})
	w.eventsPort = closedPort(t)
	return w
}

// closedPort returns a port on which nobody listens.
func closedPort(t testing.TB) int {
	t.Helper()
	port, err := strconv.Atoi(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

const metricsOfTwo = `process_start_time_seconds 1.76421503725e+09
vllm:num_requests_running{engine="0"} 0
vllm:num_requests_running{engine="1"} 0
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="10"} 1
`

func TestDetectVLLM(t *testing.T) {
	w := pages(t, map[string]string{"/version": `{"version":"0.24.0"}`, "/metrics": metricsOfTwo})
	if _, ok := w.Identity(); ok {
		t.Error("known before it was asked")
	}
	id, err := w.Detect(t.Context())
	if err != nil || id.Engine != VLLM || id.Version != "0.24.0" || id.Ranks != 2 || id.BlockTokens != 32 || id.BootKind != BootStartTime || id.Boot == 0 {
		t.Errorf("%+v, %v", id, err)
	}
	if id.Events != "" || !strings.Contains(id.ApproximateReason, "--kv-events-config") || !strings.Contains(id.ApproximateReason, "events=") {
		t.Errorf("a worker without events: %+v", id)
	}
	if kept, ok := w.Identity(); !ok || kept != id {
		t.Errorf("kept %+v", kept)
	}

	// What says nothing is vLLM, of which nothing is known.
	silent := pages(t, nil)
	id, err = silent.Detect(t.Context())
	if err != nil || id.Engine != VLLM || id.Version != "" || id.Ranks != 0 || id.BootKind != BootDrawn || id.Boot != 0 || id.ApproximateReason == "" {
		t.Errorf("%+v, %v", id, err)
	}

	// The spec outranks what could be found out.
	named := pages(t, map[string]string{"/version": "{", "/metrics": "<html>", "/server_info": `{"vllm_config":"…"}`})
	named.Spec.Events, named.Spec.Replay = "tcp://e:1", "tcp://e:3"
	id, err = named.Detect(t.Context())
	if want := (Identity{Engine: VLLM, Events: "tcp://e:1", Replay: "tcp://e:3"}); err != nil || id != want {
		t.Errorf("%+v, %v", id, err)
	}
}

// Where nobody says where events are, the default ports are tried.
func TestDetectTriesTheDefaultPort(t *testing.T) {
	port := closedPort(t)
	pub, err := zmtp.ListenPub(fmt.Sprintf("127.0.0.1:%d", port), zmtp.PubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	answers := map[string]string{"/metrics": "process_start_time_seconds 1\n"}
	w := pages(t, answers)
	w.eventsPort = port
	events := fmt.Sprintf("tcp://127.0.0.1:%d", port)
	id, err := w.Detect(t.Context())
	if err != nil || id.Events != events || !id.Guessed || id.Replay != "" || id.ApproximateReason != "" {
		t.Errorf("%+v, %v", id, err)
	}

	router, err := zmtp.ListenRouter(fmt.Sprintf("127.0.0.1:%d", port+1), zmtp.RouterOptions{}, func([]byte, [][]byte, func(...[]byte) error) {})
	if err != nil {
		t.Skipf("the next port is taken: %v", err)
	}
	defer router.Close()
	if again, err := w.Detect(t.Context()); err != nil || again != id {
		t.Errorf("tried twice in one boot: %+v, %v", again, err)
	}
	answers["/metrics"] = "process_start_time_seconds 2\n"
	next, err := w.Detect(t.Context())
	if err != nil || next.Boot == id.Boot || next.Events != events || next.Replay != fmt.Sprintf("tcp://127.0.0.1:%d", port+1) {
		t.Errorf("in the next boot: %+v, %v", next, err)
	}
	// Two ranks: the next port is the second's, not a replay.
	answers["/metrics"] = metricsOfTwo
	if id, err := w.Detect(t.Context()); err != nil || id.Replay != "" {
		t.Errorf("two ranks: %+v, %v", id, err)
	}
	// What listens there and isn't a publisher isn't taken for one.
	w.eventsPort, answers["/metrics"] = port+1, "process_start_time_seconds 3\n"
	if id, err := w.Detect(t.Context()); err != nil || id.Events != "" || !strings.Contains(id.ApproximateReason, "ROUTER") {
		t.Errorf("another socket: %+v, %v", id, err)
	}
}

func TestDetectSGLang(t *testing.T) {
	raw, err := os.ReadFile("testdata/sglang_server_info.json")
	if err != nil {
		t.Fatal(err)
	}
	w := pages(t, map[string]string{"/server_info": string(raw)})
	id, err := w.Detect(t.Context())
	want := Identity{Engine: SGLang, Version: "0.5.18", Events: "tcp://127.0.0.1:5557", Replay: "tcp://127.0.0.1:5657", Ranks: 2, BlockTokens: 16}
	if err != nil || id != want {
		t.Errorf("%+v, %v", id, err)
	}
	w.Spec.Events = "tcp://e:1"
	if id, err := w.Detect(t.Context()); err != nil || id.Events != "tcp://e:1" || id.Replay != "" {
		t.Errorf("the spec's: %+v, %v", id, err)
	}

	for name, c := range map[string]struct {
		info           string // after the version
		events, replay string
		reason         string
	}{
		"nothing said":         {`"page_size":1`, "", "", "publishes no KV events: start SGLang with"},
		"null":                 {`"kv_events":null`, "", "", "publishes no KV events"},
		"null publisher":       {`"page_size":1,"kv_events":{"publisher":"null"}`, "", "", "publishes no KV events"},
		"a host":               {`"kv_events":{"publisher":"zmq","endpoint_host":"10.0.0.7","endpoint_port_base":7000}`, "tcp://10.0.0.7:7000", "", ""},
		"all of IPv6":          {`"kv_events":{"publisher":"zmq","endpoint_host":"::","endpoint_port_base":7000}`, "tcp://127.0.0.1:7000", "", ""},
		"an IPv6 host":         {`"kv_events":{"publisher":"zmq","endpoint_host":"fe80::1","endpoint_port_base":7000}`, "tcp://[fe80::1]:7000", "", ""},
		"no port":              {`"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":0}`, "", "", "at port 0"},
		"a huge port":          {`"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":1e300}`, "", "", "at port 1e+300"},
		"ranks past the ports": {`"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":65535,"dp_size":2}`, "", "", "rank 1 would be 65536"},
		"the argument":         {`"page_size":1,"kv_events_config":"{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:6000\"}"`, "tcp://127.0.0.1:6000", "", ""},
		"the argument dials":   {`"page_size":1,"kv_events_config":"{\"publisher\":\"zmq\",\"endpoint\":\"tcp://r:6000\"}"`, "", "", "dials tcp://r:6000"},
		"the argument is odd":  {`"page_size":1,"kv_events_config":"x"`, "", "", "can't be read"},
		"the argument is ipc":  {`"page_size":1,"kv_events_config":"{\"publisher\":\"zmq\",\"endpoint\":\"ipc:///x\"}"`, "", "", "can't be reached"},
		"replay beside events": {`"dp_size":2,"page_size":1,"kv_events_config":"{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:6000\",\"replay_endpoint\":\"tcp://*:6001\"}"`, "", "", "at least 2 apart"},
	} {
		w := pages(t, map[string]string{"/server_info": `{"version":"0.5.9",` + c.info + "}"})
		id, err := w.Detect(t.Context())
		if err != nil || id.Engine != SGLang || id.Events != c.events || id.Replay != c.replay || !strings.Contains(id.ApproximateReason, c.reason) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
		if (id.Events == "") != (id.ApproximateReason != "") {
			t.Errorf("%s: neither events nor a reason, or both: %+v", name, id)
		}
	}
}

func TestDetectOldSGLang(t *testing.T) {
	// The old name of the page; hashes that aren't chained, whatever is published.
	w := pages(t, map[string]string{"/get_server_info": `{"version":"0.5.5","page_size":64,"dcp_size":2,"instance_id":"i-7","start_time":5,
		"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557}}`})
	w.Spec.Events = "tcp://h:1"
	id, err := w.Detect(t.Context())
	if err != nil || id.Engine != SGLang || id.BlockTokens != 128 || id.Events != "" || !strings.Contains(id.ApproximateReason, "0.5.6 or newer") {
		t.Errorf("%+v, %v", id, err)
	}
	if id.BootKind != BootInstance || id.Boot == 0 {
		t.Errorf("boot %v of kind %d", id.Boot, id.BootKind)
	}
	w = pages(t, map[string]string{"/server_info": `{"version":"0.5.9","page_size":1,"instance_id":null,"start_time":1764215037.25}`})
	if id, err := w.Detect(t.Context()); err != nil || id.BootKind != BootStartTime || id.Boot == 0 {
		t.Errorf("%+v, %v", id, err)
	}
}

// What says nothing for good is told from what may answer later.
func TestDetectErrors(t *testing.T) {
	for name, w := range map[string]*Worker{
		"server error":  pages(t, map[string]string{"/server_info": ""}),
		"odd types":     pages(t, map[string]string{"/server_info": `{"page_size":"x"}`}),
		"metrics later": pages(t, map[string]string{"/metrics": ""}),
		"version later": pages(t, map[string]string{"/version": ""}),
	} {
		if id, err := w.Detect(t.Context()); err == nil || !strings.Contains(err.Error(), w.Spec.URL) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
		if _, ok := w.Identity(); ok {
			t.Errorf("%s: something is kept", name)
		}
	}
	w := pages(t, nil)
	w.Spec.Engine = SGLang
	if _, err := w.Detect(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing like SGLang's") {
		t.Errorf("no SGLang: %v", err)
	}
	w.Spec.Events = "tcp://h:1"
	if id, err := w.Detect(t.Context()); err != nil || id != (Identity{Engine: SGLang, Events: "tcp://h:1"}) {
		t.Errorf("SGLang that says nothing: %+v, %v", id, err)
	}
	gone := pages(t, nil)
	gone.base.Host = fmt.Sprintf("127.0.0.1:%d", closedPort(t))
	if _, err := gone.Detect(t.Context()); !errors.Is(err, ErrConnect) {
		t.Errorf("nobody there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Detect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A worker that is said to be vLLM isn't asked whether it is SGLang.
func TestDetectAsksLittle(t *testing.T) {
	var asked atomic.Int32
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "server_info") {
			asked.Add(1)
		}
		http.NotFound(rw, r)
	})
	w.Spec.Engine, w.Spec.Events = VLLM, "tcp://h:1"
	if _, err := w.Detect(t.Context()); err != nil || asked.Load() > 0 {
		t.Errorf("asked %d times, %v", asked.Load(), err)
	}
}

// An SGLang worker that says its page size has it in its telemetry, too.
func TestIdentityInTelemetry(t *testing.T) {
	w := pages(t, map[string]string{"/server_info": `{"version":"0.5.9","page_size":64}`, "/v1/loads": `{"loads":[{"dp_rank":0,"num_running_reqs":1}]}`})
	if _, err := w.Detect(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := w.Scrape(t.Context())
	if err != nil || got.Rank(0).BlockTokens != told(64) || got.Rank(0).Running != told(1) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzServerInfo(f *testing.F) {
	raw, err := os.ReadFile("testdata/sglang_server_info.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"version":"0.5.9","page_size":1e300,"dp_size":-1,"kv_events":{"publisher":"zmq","endpoint_host":",","endpoint_port_base":1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		info, err := parseServerInfo(body)
		if err != nil || info == nil {
			return
		}
		w, err := NewWorker("c", Spec{URL: "http://h"})
		if err != nil {
			t.Fatal(err)
		}
		id := w.sglangIdentity(info)
		if (id.Events == "") != (id.ApproximateReason != "") || id.Ranks < 0 || id.Ranks > MaxRanks || id.BlockTokens < 0 {
			t.Fatalf("%+v", id)
		}
		if id.Events == "" {
			return
		}
		if _, err := (Spec{URL: "http://h", Events: id.Events, Replay: id.Replay, Ranks: id.Ranks}).Canonical(); err != nil {
			t.Fatal(err)
		}
	})
}
