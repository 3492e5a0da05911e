package emulator

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/engine/vllm"
	"github.com/rhizome-router/rhizome/engine/zmtp"
	"github.com/rhizome-router/rhizome/kv"
)

// The bytes of the shared golden samples of vLLM's events.
func TestEventsGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/events_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]string
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	run := stored{
		hashes: []kv.EngineHash{0x1122334455667788, 0x99AABBCCDDEEFF00}, hasParent: true, parent: 0x0102030405060708,
		tokens: []uint32{1, 2, 3, 4, 100, 300, 70000, 8}, blockTokens: 4, medium: "GPU",
	}
	for id, event := range map[string][]byte{
		"V7":  vllmStored(nil, FormArray, run),
		"V8b": vllmRemoved(nil, FormArray, run.hashes[:1], "GPU", 0),
		"V9":  FormArray.appendCleared(nil),
		"V11": vllmStored(nil, FormMap, run),
		"V13": vllmRemoved(nil, FormMap, run.hashes[:1], "GPU", 0),
		"V14": FormMap.appendCleared(nil),
	} {
		if got := hex.EncodeToString(appendBatch(nil, 1700000000.5, 1, event, 0)); got != golden[id] {
			t.Errorf("%s:\n got %s\nwant %s", id, got, golden[id])
		}
	}
}

// Blocks of a sliding window are told as those of another group, so that the
// router knows how many of them a prefix needs.
func TestEventsOfASlidingWindow(t *testing.T) {
	for _, form := range []EventForm{FormArray, FormMap} {
		w := start(t, func(c *Config) { c.Preset.WindowTokens, c.EventForm = 40, form })
		complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 1})
		blocks, windowed := 0, 0
		for _, payload := range replayFrom(t, w, 0) {
			b, err := vllm.Decode(payload, "m")
			if err != nil || b.BadEvents+b.UnknownEvents > 0 {
				t.Fatalf("%+v, %v", b, err)
			}
			for _, op := range b.Ops {
				blocks += len(op.Blocks)
				if op.Group == model.WindowGroup {
					windowed += len(op.Hashes)
				}
			}
			for _, g := range b.Groups {
				if g.ID != model.WindowGroup || g.WindowTokens != 40 || g.BlockTokens != 16 {
					t.Errorf("%s: group %+v, want one of 40 tokens", form, g)
				}
			}
		}
		if blocks == 0 || windowed != blocks {
			t.Errorf("%s: %d blocks, %d of the window", form, blocks, windowed)
		}
	}
}

func TestMsgpackWidths(t *testing.T) {
	for _, v := range []uint64{0, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, 1<<64 - 1} {
		var got uint64
		if err := msgpack.Unmarshal(appendUint(nil, v), &got); err != nil || got != v {
			t.Errorf("%d became %d, %v", v, got, err)
		}
	}
	for _, n := range []int{0, 15, 16, 31, 32, 255, 256, 65535, 65536} {
		s := string(make([]byte, n))
		var got string
		if err := msgpack.Unmarshal(appendString(nil, s), &got); err != nil || got != s {
			t.Errorf("a string of %d: %v", n, err)
		}
		b := appendArrayLen(nil, n)
		for range n {
			b = appendNil(b)
		}
		var list []any
		if err := msgpack.Unmarshal(b, &list); err != nil || len(list) != n {
			t.Errorf("an array of %d: %d, %v", n, len(list), err)
		}
	}
}

// listener gathers what a worker's PUB socket sends.
type listener struct {
	conn *zmtp.Conn
	wg   sync.WaitGroup

	mu       sync.Mutex
	payloads map[uint64][]byte
	order    []uint64 // of arrival
	firstAt  time.Time
	topics   map[string]bool
	problem  error
	more     sync.Cond // something of it changed
}

func subscribe(t *testing.T, w *Worker) *listener {
	t.Helper()
	conn, err := zmtp.Dial(t.Context(), w.EventsEndpoint(), zmtp.Options{Type: zmtp.SUB})
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{conn: conn, payloads: map[uint64][]byte{}, topics: map[string]bool{}}
	l.more.L = &l.mu
	l.wg.Go(func() {
		for {
			frames, err := conn.Recv()
			l.mu.Lock()
			if err != nil {
				l.problem = err
				l.more.Broadcast()
				l.mu.Unlock()
				return
			}
			if len(frames) != 3 || len(frames[1]) != 8 {
				l.problem = fmt.Errorf("message of %d frames: %x", len(frames), frames)
			} else {
				if len(l.order) == 0 {
					l.firstAt = time.Now()
				}
				seq := binary.BigEndian.Uint64(frames[1])
				l.payloads[seq] = frames[2]
				l.order = append(l.order, seq)
				l.topics[string(frames[0])] = true
			}
			l.more.Broadcast()
			l.mu.Unlock()
		}
	})
	t.Cleanup(l.close)
	subscribed(t, w)
	return l
}

func (l *listener) close() {
	l.conn.Close()
	l.wg.Wait()
}

// replayFrom asks for everything from start on, until the worker has told all.
func replayFrom(t *testing.T, w *Worker, start uint64) map[uint64][]byte {
	t.Helper()
	conn, err := zmtp.Dial(t.Context(), w.ReplayEndpoint(), zmtp.Options{Type: zmtp.DEALER})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want := 4 // frames
	if w.cfg.Engine == SGLang {
		want = 3 // no topic
	}
	out := map[uint64][]byte{}
	for {
		before := len(out)
		if err := conn.Send(nil, seqFrame(start+uint64(before))); err != nil {
			t.Fatal(err)
		}
		for {
			frames, err := conn.Recv()
			if err != nil {
				t.Fatal(err)
			}
			n := len(frames)
			if n != want || len(frames[0]) != 0 || len(frames[n-2]) != 8 {
				t.Fatalf("reply %x", frames)
			}
			seq := binary.BigEndian.Uint64(frames[n-2])
			if seq == endSeq {
				if len(frames[n-1]) != 0 || n == 4 && len(frames[1]) != 0 {
					t.Fatalf("end marker %x", frames)
				}
				break
			}
			out[seq] = frames[n-1]
		}
		if len(out) == before {
			return out
		}
	}
}

// held is a cache put together from events: copies of each block by tier, and
// the key of each, which needs every parent to be known before its children.
type held struct {
	copies [kv.NumTiers]map[kv.EngineHash]int
	keys   map[kv.EngineHash]kv.Key
}

func newHeld() *held {
	h := &held{keys: map[kv.EngineHash]kv.Key{}}
	for i := range h.copies {
		h.copies[i] = map[kv.EngineHash]int{}
	}
	return h
}

func replay(t *testing.T, payloads map[uint64][]byte) *held {
	return replayWith(t, payloads, vllm.Decode)
}

func replayWith(t *testing.T, payloads map[uint64][]byte, decode func([]byte, string) (kvwire.Batch, error)) *held {
	t.Helper()
	h := newHeld()
	seqs := slices.Sorted(maps.Keys(payloads))
	for i, seq := range seqs {
		if seq != uint64(i) {
			t.Fatalf("batch %d is missing", i)
		}
		b, err := decode(payloads[seq], "m")
		if err != nil || b.BadEvents+b.UnknownEvents > 0 || b.Rank != 0 || b.TimestampSeconds < 1e9 {
			t.Fatalf("batch %d: %+v, %v", seq, b, err)
		}
		h.apply(t, b)
	}
	return h
}

func (h *held) apply(t *testing.T, b kvwire.Batch) {
	for _, op := range b.Ops {
		switch op.Kind {
		case kv.Insert:
			parent := op.Root
			if op.HasParent {
				key, ok := h.keys[op.Parent]
				if !ok {
					t.Fatalf("run on %v hangs on block %x, which nobody told", op.Tier, op.Parent)
				}
				parent = key
			}
			for _, bl := range op.Blocks {
				parent = kv.Next(parent, bl.Content)
				if old, ok := h.keys[bl.Hash]; ok && old != parent {
					t.Fatalf("block %x has two keys", bl.Hash)
				}
				h.keys[bl.Hash] = parent
				h.copies[op.Tier][bl.Hash]++
			}
			if op.BlockTokens != 16 {
				t.Fatalf("blocks of %d tokens", op.BlockTokens)
			}
		case kv.Remove:
			for _, hash := range op.Hashes {
				if h.copies[op.Tier][hash]--; h.copies[op.Tier][hash] == 0 {
					delete(h.copies[op.Tier], hash)
				}
			}
		case kv.Clear:
			for tier := range kv.Tier(kv.NumTiers) {
				if op.Tiers.Has(tier) {
					clear(h.copies[tier])
				}
			}
		default:
			t.Fatalf("unexpected op %v", op.Kind)
		}
	}
}

func (h *held) check(t *testing.T, w *Worker) {
	t.Helper()
	want := cacheOf(w)
	if d := cmp.Diff(want.copies, h.copies); d != "" {
		t.Errorf("(-cache +events):\n%s", d)
	}
	for _, tier := range []kv.Tier{kv.HBM, kv.CPU} {
		if len(want.copies[tier]) == 0 {
			t.Errorf("nothing on %v: the test tests nothing", tier)
		}
	}
}

// cacheOf returns what a worker's tiers hold, without keys.
func cacheOf(w *Worker) *held {
	h := newHeld()
	for tier := range kv.Tier(kv.NumTiers) {
		for _, hash := range w.Cached(tier) {
			h.copies[tier][hash]++
		}
	}
	return h
}

// Whoever hears the events, live or by replay, has exactly the model's cache,
// and the keys that the router gives to the same prompts.
func TestEventsTellTheCache(t *testing.T) {
	for _, form := range []EventForm{FormMap, FormArray} {
		t.Run(string(form), func(t *testing.T) {
			w := start(t, func(c *Config) {
				c.PoolTokens, c.MaxModelLen, c.EventForm, c.Speedup, c.Topic = 3200, 2500, form, 2000, "kv@w"
				c.Tiers = []model.TierConfig{{Tier: kv.CPU, CapacityTokens: 4800}, {Tier: kv.Disk, CapacityTokens: 1600}}
			})
			l := subscribe(t, w)
			var wg sync.WaitGroup
			url, hc := w.URL()+"/v1/completions", client(t)
			for c := range 4 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(1, uint64(c)))
					for range 30 {
						family := rnd.IntN(6)
						prompt := words(family, 1600+400*rnd.IntN(4)) + words(rnd.IntN(3), 800)
						body := fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"cache_salt":"s%d"}`, prompt, 1+rnd.IntN(60), family%2)
						if res, raw, err := postWith(hc, url, body); err != nil || res.StatusCode != http.StatusOK {
							t.Errorf("%v: %s", err, raw)
							return
						}
					}
				})
			}
			wg.Wait()
			replayed := replayFrom(t, w, 0)
			replay(t, replayed).check(t, w)
			// Live, up to the last batch. It may still be on its way.
			l.waitFor(uint64(len(replayed)) - 1)
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.problem != nil {
				t.Fatal(l.problem)
			}
			for seq, p := range l.payloads {
				if !slices.Equal(p, replayed[seq]) {
					t.Errorf("batch %d differs live and replayed", seq)
				}
			}
			if len(l.topics) != 1 || !l.topics["kv@w"] {
				t.Errorf("topics %v", l.topics)
			}
		})
	}
}

// waitFor waits until the batch numbered seq has come.
func (l *listener) waitFor(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.payloads[seq] == nil && l.problem == nil {
		l.more.Wait()
	}
}

// The keys of a prompt's events are those a router computes from the tokens.
func TestEventKeysAreTheRoutersKeys(t *testing.T) {
	w := start(t, nil)
	text := words(1, 1000)
	c := complete(t, w.URL()+"/v1/completions", obj{"prompt": text, "max_tokens": 30})
	h := replay(t, replayFrom(t, w, 0))
	tokens := appendTokens(nil, []byte(text+c.Choices[0].Text))
	tokens = tokens[:len(tokens)-1] // the last one's KV is never computed
	want := kv.AppendKeys(nil, kv.Root("m", "", ""), tokens, 16)
	got := slices.Sorted(maps.Values(h.keys))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d keys from events, %d from tokens", len(got), len(want))
	}
}

func TestResetPrefixCache(t *testing.T) {
	w := start(t, nil)
	complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 3})
	if res, _ := post(t, w.URL()+"/reset_prefix_cache", ""); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	h := replay(t, replayFrom(t, w, 0))
	if n := len(h.copies[kv.HBM]); n != 0 || len(w.Cached(kv.HBM)) != 0 {
		t.Errorf("%d blocks left by the events, %d in the model", n, len(w.Cached(kv.HBM)))
	}
}

func TestRingIsBounded(t *testing.T) {
	var r ring
	for i := range replayBatches + 10 {
		if seq := r.add([]byte{1}); seq != uint64(i) {
			t.Fatalf("batch %d got number %d", i, seq)
		}
	}
	if seq, p := r.from(0); seq != 10 || len(p) != replayBatches {
		t.Errorf("from 0: %d batches from %d", len(p), seq)
	}
	if seq, p := r.from(replayBatches); seq != replayBatches || len(p) != 10 {
		t.Errorf("from %d: %d batches from %d", replayBatches, len(p), seq)
	}
	if _, p := r.from(1 << 63); len(p) != 0 {
		t.Errorf("from the future: %d batches", len(p))
	}
	big := ring{}
	for range 5 {
		big.add(make([]byte, replayMaxBytes/4))
	}
	if _, p := big.from(0); len(p) != 4 {
		t.Errorf("%d big batches kept", len(p))
	}
}
