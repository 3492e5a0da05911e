package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// BenchmarkRelay measures a whole request over loopback TCP, to a worker
// directly and through the gateway; the difference is what the gateway costs.
//
//	go test -run '^$' -bench Relay ./gateway
func BenchmarkRelay(b *testing.B) {
	body := func(size int) string {
		return `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", size/5) + `"}]}`
	}
	stream := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 800) + `"}]}`
	for _, c := range []struct {
		name, body string
		answer     http.HandlerFunc
	}{
		{"json4KB", body(4 << 10), answerOf(4 << 10)},
		{"json64KB", body(64 << 10), answerOf(64 << 10)},
		{"stream100", stream, streamOf(100)},
	} {
		worker := httptest.NewServer(c.answer)
		r := newRig(b, Config{}, testkit.NewWorker(b))
		r.aim(0, worker.URL)
		for _, via := range []struct{ name, url string }{{"direct", worker.URL}, {"gateway", r.url}} {
			b.Run(c.name+"/"+via.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					a, err := r.client.Post(via.url+chat, "application/json", strings.NewReader(c.body))
					if err != nil {
						b.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != 200 {
						b.Fatal(a.Status, err)
					}
					a.Body.Close()
				}
			})
		}
		r.stop()
		worker.Close()
	}
}

func answerOf(size int) http.HandlerFunc {
	answer := []byte(`{"choices":[{"text":"` + strings.Repeat("word ", size/5) + `"}],` + usageJSON + `}`)
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.Write(answer)
	}
}

func streamOf(chunks int) http.HandlerFunc {
	event := []byte("data: " + chunkOf("word") + "\n\n")
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range chunks {
			w.Write(event)
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, "data: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", usageJSON)
	}
}

// BenchmarkTap measures what reading along costs per byte of a stream.
func BenchmarkTap(b *testing.B) {
	event := []byte("data: " + chunkOf("word") + "\n\n")
	b.SetBytes(int64(len(event)))
	t := &tap{sse: true}
	for b.Loop() {
		t.Write(event)
	}
}
