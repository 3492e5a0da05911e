package emulator

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/engine/sglang"
	"github.com/rhizome-router/rhizome/kv"
)

var goldenTokens = []uint32{1, 2, 3, 4, 100, 300, 70000, 8}

// The bytes of the shared golden samples of SGLang's events, hashes included.
func TestSGLangEventsGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/events_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]string
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	name := sglangNames(0, 4)
	hashes := name(goldenTokens, extras{})
	page := func(i int, medium string) stored {
		s := stored{hashes: hashes[i : i+1], tokens: goldenTokens[4*i : 4*i+4], blockTokens: 4, medium: medium}
		if i > 0 {
			s.hasParent, s.parent = true, hashes[i-1]
		}
		return s
	}
	salted := page(0, "GPU")
	salted.hashes, salted.salt = name(goldenTokens[:4], extras{salt: "tenantA"}), "tenantA"
	for id, events := range map[string][][]byte{
		"S1":  {sglangStored(nil, FormArray, page(0, ""))},
		"S2":  {sglangStored(nil, FormArray, page(0, "GPU")), sglangStored(nil, FormArray, page(1, "GPU"))},
		"S3":  {sglangStored(nil, FormArray, salted)},
		"S4":  {sglangStored(nil, FormArray, page(0, "CPU_PINNED"))},
		"S5":  {sglangRemoved(nil, FormArray, hashes[:1], "GPU", 0)},
		"S6":  {FormArray.appendCleared(nil)},
		"S9":  {sglangRemoved(nil, FormMap, hashes[:1], "CPU_PINNED", 0)},
		"S10": {FormMap.appendCleared(nil)},
	} {
		got := hex.EncodeToString(appendBatch(nil, 1700000000.5, len(events), slices.Concat(events...), 0))
		if got != golden[id] {
			t.Errorf("%s:\n got %s\nwant %s", id, got, golden[id])
		}
	}
}

func TestSGLangNames(t *testing.T) {
	name := sglangNames(0, 4)
	for salt, want := range map[string][]int64{"": {-3488128144981237669, -2270972314410630212}, "tenantA": {7374971315066384533}} {
		for i, h := range name(append(goldenTokens, 9, 9), extras{salt: salt})[:len(want)] {
			if int64(h) != want[i] {
				t.Errorf("salt %q, page %d: %d, want %d", salt, i, int64(h), want[i])
			}
		}
	}
	if n := len(name(append(goldenTokens, 9, 9), extras{})); n != 2 {
		t.Errorf("%d names of two pages and a half", n)
	}
}

func startSGLang(t testing.TB, change func(*Config)) *Worker {
	return start(t, func(c *Config) {
		c.Engine = SGLang
		if change != nil {
			change(c)
		}
	})
}

// Whoever hears SGLang's events has exactly the model's cache, whose blocks
// have the router's keys.
func TestSGLangEventsTellTheCache(t *testing.T) {
	for _, form := range []EventForm{FormMap, FormArray} {
		t.Run(string(form), func(t *testing.T) {
			w := startSGLang(t, func(c *Config) {
				c.PoolTokens, c.MaxModelLen, c.EventForm, c.Speedup = 3200, 2500, form, 2000
				c.Tiers = []model.TierConfig{{Tier: kv.CPU, CapacityTokens: 4800}}
			})
			var wg sync.WaitGroup
			url, hc := w.URL()+"/v1/completions", client(t)
			for c := range 4 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(1, uint64(c)))
					for range 20 {
						family := rnd.IntN(6)
						prompt := words(family, 1600+400*rnd.IntN(4)) + words(rnd.IntN(3), 800)
						body := fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"cache_salt":%q}`, prompt, 1+rnd.IntN(60), []string{"", "s"}[family%2])
						if res, raw, err := postWith(hc, url, body); err != nil || res.StatusCode != http.StatusOK {
							t.Errorf("%v: %s", err, raw)
							return
						}
					}
				})
			}
			wg.Wait()
			payloads := replayFrom(t, w, 0)
			first, err := sglang.Decode(payloads[0], "m")
			if err != nil || len(first.Ops) != 1 || first.Ops[0].Kind != kv.Clear {
				t.Errorf("the first batch is %+v, %v; want a clear", first, err)
			}
			replayWith(t, payloads, sglang.Decode).check(t, w)
			if res, _ := post(t, w.URL()+"/flush_cache", ""); res.StatusCode != http.StatusOK {
				t.Fatal(res.Status)
			}
			h := replayWith(t, replayFrom(t, w, 0), sglang.Decode)
			if d := cmp.Diff(cacheOf(w).copies, h.copies); d != "" || len(h.copies[kv.HBM])+len(h.copies[kv.CPU]) != 0 {
				t.Errorf("after a flush: %s%d and %d blocks", d, len(h.copies[kv.HBM]), len(h.copies[kv.CPU]))
			}
		})
	}
}

// Two workers, and the router from the tokens alone, agree on names and keys;
// what decoding filled is told when the request has ended.
func TestSGLangKeysAreTheRoutersKeys(t *testing.T) {
	text := words(1, 1000)
	var names [2][]kv.EngineHash
	for i := range names {
		w := startSGLang(t, func(c *Config) { c.Seed = uint64(i) })
		c := complete(t, w.URL()+"/v1/completions", obj{"prompt": text, "max_tokens": 40})
		payloads := replayFrom(t, w, 0)
		h := replayWith(t, payloads, sglang.Decode)
		names[i] = slices.Sorted(maps.Keys(h.keys))
		tokens := appendTokens(nil, []byte(text+c.Choices[0].Text))
		tokens = tokens[:len(tokens)-1] // the last one's KV is never computed
		want := kv.AppendKeys(nil, kv.Root("m", "", ""), tokens, 16)
		slices.Sort(want)
		if got := slices.Sorted(maps.Values(h.keys)); !slices.Equal(got, want) {
			t.Errorf("%d keys from events, %d from tokens", len(got), len(want))
		}
		if len(payloads) != 3 {
			t.Errorf("%d batches, want a clear, the prompt and the answer", len(payloads))
		}
	}
	if !slices.Equal(names[0], names[1]) {
		t.Error("two workers name equal blocks differently")
	}
}

func get(t *testing.T, url string) (*http.Response, []byte) {
	t.Helper()
	res, err := client(t).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, raw
}

func TestSGLangHTTP(t *testing.T) {
	w := startSGLang(t, func(c *Config) { c.Topic, c.MaxModelLen = "kv", 2000 })
	body := obj{"prompt": words(1, 1000), "max_tokens": 5, "return_cached_tokens_details": true}
	complete(t, w.URL()+"/v1/completions", body)
	c := complete(t, w.URL()+"/v1/completions", body)
	if c.cached() != 240 || c.SGLExt.CachedTokensDetails.Device != 240 || c.SGLExt.CachedTokensDetails.Host != 0 {
		t.Errorf("%+v, %+v", c.Usage, c.SGLExt)
	}
	body["stream"], body["stream_options"] = true, obj{"include_usage": true}
	_, raw := post(t, w.URL()+"/v1/completions", body)
	events := sse(t, raw)
	details := decodeAs[completion](t, []byte(events[len(events)-3]))
	if details.SGLExt == nil || details.SGLExt.CachedTokensDetails.Device != 240 || len(details.Choices) != 0 {
		t.Errorf("details chunk %s", events[len(events)-3])
	}
	if !strings.Contains(string(raw), `"finish_reason":"length","matched_stop":null`) {
		t.Errorf("no matched_stop: %s", raw)
	}
	_, raw = get(t, w.URL()+"/server_info")
	info := decodeAs[struct {
		Version  string
		PageSize int `json:"page_size"`
		KVEvents struct {
			Publisher string
			Host      string `json:"endpoint_host"`
			Port      int    `json:"endpoint_port_base"`
			Topic     string
			BlockSize int `json:"block_size"`
			DPSize    int `json:"dp_size"`
		} `json:"kv_events"`
	}](t, raw)
	ev := info.KVEvents
	if info.Version != "0.5.18" || info.PageSize != 16 || ev.Publisher != "zmq" || ev.Topic != "kv" || ev.BlockSize != 16 || ev.DPSize != 1 ||
		fmt.Sprintf("tcp://%s:%d", ev.Host, ev.Port) != w.EventsEndpoint() {
		t.Errorf("server info %s", raw)
	}
	for _, path := range []string{"/get_server_info", "/model_info", "/get_model_info", "/health", "/health_generate"} {
		if res, raw := get(t, w.URL()+path); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, res.Status, raw)
		}
	}
	_, raw = post(t, w.URL()+"/v1/tokenize", obj{"prompt": "hello"})
	if n := decodeAs[struct{ Count int }](t, raw).Count; n != 2 {
		t.Errorf("tokenize: %s", raw)
	}
	_, raw = post(t, w.URL()+"/v1/detokenize", obj{"tokens": []uint32{tokenEnd}})
	if !strings.Contains(string(raw), `"text":"`) {
		t.Errorf("detokenize: %s", raw)
	}
	_, raw = post(t, w.URL()+"/v1/completions", obj{"prompt": ""})
	if e := decodeAs[struct {
		Object, Message string
		Code            int
	}](t, raw); e.Object != "error" || e.Message == "" || e.Code != 400 {
		t.Errorf("error %s", raw)
	}
	if spec := w.Spec(); !strings.HasSuffix(spec, ",engine=sglang") {
		t.Errorf("spec %q", spec)
	}
}

func TestSGLangLoadsAndMetrics(t *testing.T) {
	w := startSGLang(t, func(c *Config) { c.MaxSeqs, c.PoolTokens, c.MaxModelLen = 1, 3200, 2000 })
	complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 5})
	// What waits is seen as the cache stands: 240 of its 250 tokens are there.
	waiting, _ := ask(w, func(o *owner) int {
		s := newSequence(w.life.Load().name, appendTokens(nil, []byte(words(1, 1000))), extras{}, false, 0, 1, 1)
		o.submit(newCall([]*sequence{s}, 1, false, o.now()))
		return o.model.WaitingTokens()
	})
	if waiting != 10 {
		t.Errorf("%d tokens wait, want 10", waiting)
	}
	_, raw := get(t, w.URL()+"/v1/loads?include=core")
	loads := decodeAs[struct {
		Version string
		Loads   []load
	}](t, raw)
	if len(loads.Loads) != 1 || loads.Version != "0.5.18" {
		t.Fatalf("loads %s", raw)
	}
	l := loads.Loads[0]
	if l.MaxTotalNumTokens != 3200 || l.MaxRunningRequests != 1 || l.TotalPrefillUncachedTokens < 250 || l.TotalPrefillBusyMicros <= 0 || l.GenThroughput <= 0 {
		t.Errorf("load %+v", l)
	}
	if _, raw := get(t, w.URL()+"/v1/loads?dp_rank=1"); !strings.Contains(string(raw), `"loads":[]`) {
		t.Errorf("loads of a rank that is not there: %s", raw)
	}
	_, text := get(t, w.URL()+"/metrics")
	const labels = `engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"}`
	for _, want := range []string{
		"sglang:max_total_num_tokens{" + labels + " 3200", "sglang:page_size{" + labels + " 16", "sglang:num_queue_reqs{" + labels + " 0",
		"sglang:token_usage{" + labels, "sglang:num_running_reqs{" + labels, "sglang:prompt_tokens_total{" + labels,
		`sglang:cached_tokens_total{cache_source="device",` + labels, "sglang:time_to_first_token_seconds_count{" + labels,
		"sglang:queue_time_seconds_count{" + labels, "sglang:prompt_tokens_histogram_count{" + labels,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	if strings.Contains(string(text), "vllm:") {
		t.Error("metrics of vLLM")
	}
}
