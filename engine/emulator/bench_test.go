package emulator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rhizome-router/rhizome/engine/zmtp"
)

// A request of the load: 12,000 tokens of which a third begins one of 200
// conversations, and 343 tokens of answer, streamed.
func loadBody(i int) []byte {
	rnd := rand.New(rand.NewPCG(3, uint64(i)))
	body, err := json.Marshal(obj{
		"model": "m", "stream": true, "max_tokens": 343, "stream_options": obj{"include_usage": true},
		"messages": []message{{"system", words(rnd.IntN(200), 16000)}, {"user", words(1000+i, 32000)}},
	})
	if err != nil {
		panic(err)
	}
	return body
}

const loadEnv = "EMULATOR_BENCH_LOAD"

// runLoad is the client side of BenchmarkFleet, in a process of its own so
// that its cost does not count: n requests at random instants, rate a second,
// round-robin over the workers. It reads its task from standard input.
func runLoad() {
	var n int
	var rate float64
	var urls string
	if _, err := fmt.Fscan(os.Stdin, &n, &rate, &urls); err != nil {
		panic(err)
	}
	workers := strings.Split(urls, ",")
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	rnd := rand.New(rand.NewPCG(1, 1))
	var wg sync.WaitGroup
	at := time.Now()
	for i := range n {
		body := loadBody(i)
		at = at.Add(time.Duration(rnd.ExpFloat64() / rate * 1e9))
		time.Sleep(time.Until(at))
		wg.Go(func() {
			res, err := hc.Post(workers[i%len(workers)]+"/v1/chat/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				panic(err)
			}
			defer res.Body.Close()
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 200 {
				panic(fmt.Sprint(res.Status, err))
			}
		})
	}
	wg.Wait()
}

func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFleet runs twelve workers at speedup 20 under 200 requests a second
// of 12,000-token prompts in all, with one subscriber to each worker's events,
// and tells the CPU time of the workers alone.
//
//	go test -run - -bench Fleet -benchtime 4000x ./engine/emulator
func BenchmarkFleet(b *testing.B) {
	const rate = 200
	g, err := StartGroup(context.Background(), GroupConfig{Config: Config{Model: "m", Speedup: 20}, Workers: 12, AnyPorts: true})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	var urls []string
	var subscribers sync.WaitGroup
	defer subscribers.Wait()
	for _, w := range g.Workers() {
		urls = append(urls, w.URL())
		c, err := zmtp.Dial(b.Context(), w.EventsEndpoint(), zmtp.Options{Type: zmtp.SUB})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		subscribers.Go(func() {
			for {
				if _, err := c.Recv(); err != nil {
					return
				}
			}
		})
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), loadEnv+"=1")
	child.Stdin = strings.NewReader(fmt.Sprintf("%d %d %s\n", b.N, rate, strings.Join(urls, ",")))
	child.Stderr = os.Stderr
	b.ResetTimer()
	before, began := cpu(), time.Now()
	if err := child.Run(); err != nil {
		b.Fatal(err)
	}
	used, took := cpu()-before, time.Since(began)
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/request")
	b.ReportMetric(used.Seconds()/took.Seconds(), "cores")
	b.ReportMetric(float64(b.N)/took.Seconds(), "requests/s")
	late := 0.0
	for _, st := range g.Stats() {
		late += st.MeanLateMicros / 12
	}
	b.ReportMetric(late, "µs-late")
}

// BenchmarkParse reads and tokenises a body of 48 KB.
func BenchmarkParse(b *testing.B) {
	body := loadBody(1)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := new(reading).request(routeChat, body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNameBlocks makes up an answer and names the blocks of 12,000 tokens.
func BenchmarkNameBlocks(b *testing.B) {
	req, err := new(reading).request(routeChat, loadBody(1))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		newSequence(vllmNames(1, 16), req.prompts[0], extras{}, false, 0, 343, 1<<20)
	}
}

// BenchmarkEncodeEvents encodes the blocks of 12,000 tokens.
func BenchmarkEncodeEvents(b *testing.B) {
	req, err := new(reading).request(routeChat, loadBody(1))
	if err != nil {
		b.Fatal(err)
	}
	s := newSequence(vllmNames(1, 16), req.prompts[0], extras{}, false, 0, 343, 1<<20)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = vllmStored(buf[:0], FormMap, stored{hashes: s.keys, tokens: s.tokens[:16*len(s.keys)], blockTokens: 16, medium: "GPU"})
	}
	b.SetBytes(int64(len(buf)))
}
