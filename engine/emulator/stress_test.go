package emulator

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
)

// Clients that come, go away in the middle and overrun the KV pool leave
// nothing behind, and the events still tell exactly the cache.
func TestRudeClientsLeaveNothingBehind(t *testing.T) {
	w := start(t, func(c *Config) {
		c.PoolTokens, c.MaxModelLen, c.Speedup = 1600, 1400, 200
		c.Tiers = []model.TierConfig{{Tier: kv.CPU, CapacityTokens: 3200, BytesPerSecond: 1e9}}
	})
	hc, url := client(t), w.URL()+"/v1/completions"
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(c)))
			for range 20 {
				body := fmt.Sprintf(`{"prompt":%q,"max_tokens":%d,"stream":true,"n":%d}`, words(rnd.IntN(4), 800+rnd.IntN(800)), 1+rnd.IntN(400), 1+rnd.IntN(2))
				if err := readSome(hc, url, body, rnd.IntN(3)*300); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The owner has stopped, so the test is the owner now.
	o := w.owner
	o.drain()
	o.model.Advance(math.Inf(1), o.sink)
	o.feed.flush()
	st := o.model.Stats()
	if len(o.jobs)+st.Running+st.Waiting+st.HBM.UsedBlocks != 0 {
		t.Errorf("%d jobs left, %+v", len(o.jobs), st)
	}
	if st.Cancelled == 0 || st.Preemptions == 0 || st.Lower[0].HitTokens == 0 {
		t.Errorf("the test is too gentle: %+v", st)
	}
	payloads := map[uint64][]byte{}
	first, list := o.feed.ring.from(0)
	for i, p := range list {
		payloads[first+uint64(i)] = p
	}
	h := replay(t, payloads)
	for _, tier := range []kv.Tier{kv.HBM, kv.CPU} {
		n := 0
		for hash := range o.model.Cached(tier) {
			n++
			if h.copies[tier][hash]--; h.copies[tier][hash] == 0 {
				delete(h.copies[tier], hash)
			}
		}
		if n == 0 || len(h.copies[tier]) != 0 {
			t.Errorf("%v: %d blocks held, events differ in %d", tier, n, len(h.copies[tier]))
		}
	}
}

// readSome reads at most n bytes of an answer and hangs up, or all when n is 0.
func readSome(hc *http.Client, url, body string, n int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	res, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", res.Status)
	}
	if n == 0 {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	_, _ = io.CopyN(io.Discard, res.Body, int64(n))
	return nil
}

// The real libzmq reads both sockets.
func TestLibzmqClients(t *testing.T) {
	python := testkit.PythonZMQ(t)
	w := start(t, func(c *Config) { c.Topic = "kv@w" })
	script := `
import sys, zmq
ctx = zmq.Context()
sub = ctx.socket(zmq.SUB); sub.setsockopt(zmq.SUBSCRIBE, b"kv@"); sub.connect(sys.argv[1])
print("up", flush=True)
frames = sub.recv_multipart()
print(len(frames), frames[0].decode(), frames[1].hex(), len(frames[2]) > 0, flush=True)
dealer = ctx.socket(zmq.DEALER); dealer.connect(sys.argv[2])
dealer.send_multipart([b"", (0).to_bytes(8, "big")])
n = 0
while True:
    f = dealer.recv_multipart()
    if f[-2] == b"\xff" * 8:
        break
    if n == 0:
        print(f[-1] == frames[2], f[:3] == [b"", b"kv@w", bytes(8)])
    n += 1
print("end", f[-1] == b"", len(f), n > 0)
ctx.destroy(0)
`
	cmd := exec.CommandContext(t.Context(), python, "-c", script, w.EventsEndpoint(), w.ReplayEndpoint())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var up [3]byte
	if _, err := io.ReadFull(out, up[:]); err != nil {
		t.Fatal(err, stderr.String())
	}
	subscribed(t, w)
	complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 1000), "max_tokens": 3})
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, stderr.String())
	}
	if want := "3 kv@w 0000000000000000 True\nTrue True\nend True 4 True\n"; string(rest) != want {
		t.Errorf("libzmq saw\n%swant\n%s", rest, want)
	}
}

// subscribed waits until somebody has subscribed: messages sent before that
// are lost on it.
func subscribed(t *testing.T, w *Worker) {
	t.Helper()
	for {
		if n, err := ask(w, func(o *owner) int { return o.feed.pub.Subscribers() }); n > 0 || err != nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("nobody subscribed")
		}
		time.Sleep(time.Millisecond)
	}
}
