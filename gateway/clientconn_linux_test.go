package gateway_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestBR12_HalfClosedClientsAreServed: who has sent a request and ends its own
// side still gets the answer, whenever that comes, whole and nothing but it; who
// leaves is noticed at once.
func TestBR12_HalfClosedClientsAreServed(t *testing.T) {
	sse := testkit.SSEHead()
	const nothing, processing, comment = "", "102 Processing\r\n\r\n", ":\n\n\r\n"
	for name, c := range map[string]struct {
		body   string
		before string // sent while the client's side is open
		end    string // how that ends
		said   string // when it has been closed
		after  string
		want   string
	}{
		"no head yet":       {asked, "", "", processing, testkit.JSON(200, `{"a":1}`), `{"a":1}`},
		"no head, stream":   {askedStream, "", "", processing, sse + testkit.Chunk(token+lastEvent) + testkit.Chunk(""), token + lastEvent},
		"no event yet":      {askedStream, sse, "\r\n\r\n", comment, testkit.Chunk(token+lastEvent) + testkit.Chunk(""), ":\n\n" + token + lastEvent},
		"between events":    {askedStream, sse + testkit.Chunk(token), "}\n\n\r\n", comment, testkit.Chunk(token+lastEvent) + testkit.Chunk(""), token + ":\n\n" + token + lastEvent},
		"inside of one":     {askedStream, sse + testkit.Chunk("data: {"), "{\r\n", nothing, testkit.Chunk("}\n\n"+lastEvent) + testkit.Chunk(""), "data: {}\n\n" + lastEvent},
		"a chunk of ndjson": {asked, testkit.Head(200, "Transfer-Encoding: chunked") + testkit.Chunk("{}\n"), "{}\n\r\n", nothing, testkit.Chunk("{}\n") + testkit.Chunk(""), "{}\n{}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := testkit.NewWorker(t)
			f := newFront(t, gateway.Config{}, w.URL())
			halved := make(chan struct{})
			w.Add(testkit.Script{testkit.Send(c.before), testkit.Wait(halved), testkit.Send(c.after)})
			client := testkit.DialRaw(t, f.url)
			client.Send(request(chatPath, c.body))
			w.Next(t)
			got := client.ReadUntil(c.end)
			client.HalfClose()
			got += client.ReadUntil(c.said)
			close(halved)
			if strings.HasPrefix(c.after, "HTTP/1.1 200 Scripted\r\nContent-Type: app") {
				got += client.ReadUntil(c.want)
			} else {
				got += client.ReadUntil("\r\n0\r\n\r\n")
			}
			_, answer, _ := strings.Cut(got, c.said[:len(c.said)*strings.Count(c.said, "102")])
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
			if err != nil {
				t.Fatalf("%v in %q", err, got)
			}
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || err != nil || string(body) != c.want {
				t.Errorf("the client got %q, %v, want %q", body, err, c.want)
			}

			if c.said == nothing {
				return // TCP's keep-alives take their time
			}
			// The same client, gone for good: by its end and by a reset.
			for _, leave := range []func(*testkit.Raw){func(r *testkit.Raw) { r.Close() }, (*testkit.Raw).Reset} {
				w.Add(testkit.Script{testkit.Send(c.before), testkit.Stall()})
				client := testkit.DialRaw(t, f.url)
				client.Send(request(chatPath, c.body))
				gone := w.Next(t).PeerGone
				client.ReadUntil(c.end)
				begun := time.Now()
				leave(client)
				<-gone
				if d := time.Since(begun); d > time.Second {
					t.Errorf("that a client left is noticed after %v", d)
				}
			}
		})
	}
}
