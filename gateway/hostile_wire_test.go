package gateway_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestHostile_Smuggling sends what two servers in a row could read as
// different requests. None of it may reach a worker, and nothing behind it on
// the connection may be taken for a request.
func TestHostile_Smuggling(t *testing.T) {
	worker := newSink(t)
	f := newFront(t, gateway.Config{}, worker.url)
	const smuggled = "POST /v1/smuggled HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`
	length := fmt.Sprintf("Content-Length: %d\r\n", len(asked))
	start := "POST " + chatPath + " HTTP/1.1\r\nHost: h\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(asked), asked)
	for name, wire := range map[string]string{
		"two lengths":            start + length + "Content-Length: 5\r\n\r\n" + asked,
		"two lengths in one":     start + "Content-Length: 57, 5\r\n\r\n" + asked,
		"signed length":          start + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(asked)) + asked,
		"negative length":        start + "Content-Length: -1\r\n\r\n" + asked,
		"hex length":             start + fmt.Sprintf("Content-Length: 0x%x\r\n\r\n", len(asked)) + asked,
		"vast length":            start + "Content-Length: 99999999999999999999\r\n\r\n" + asked,
		"blank before colon":     start + "Content-Length : 5\r\n" + length + "\r\n" + asked,
		"blank in encoding name": start + "Transfer-Encoding : chunked\r\n" + length + "\r\n" + asked,
		"unknown encoding":       start + "Transfer-Encoding: xchunked\r\n" + length + "\r\n" + asked,
		"encoding list":          start + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked,
		"encoding twice":         start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
		"vertical tab":           start + "Transfer-Encoding: \x0bchunked\r\n" + length + "\r\n" + asked,
		"folded line":            start + length + "X-A: b\r\n\tTransfer-Encoding: chunked\r\n Content-Length: 5\x00\r\n\r\n" + asked,
		"lone CR":                start + "X-A: b\rContent-Length: 5\r\n" + length + "\r\n" + asked,
		"NUL in a value":         start + "X-A: \x00\r\n" + length + "\r\n" + asked,
		"two hosts":              start + "Host: other\r\n" + length + "\r\n" + asked,
		"no host":                "POST " + chatPath + " HTTP/1.1\r\n" + length + "\r\n" + asked,
		"no version":             "POST " + chatPath + "\r\nHost: h\r\n" + length + "\r\n" + asked,
		"odd version":            "POST " + chatPath + " HTTP/1.9\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n" + chunked,
		"signed chunk":           start + "Transfer-Encoding: chunked\r\n\r\n+" + chunked,
		"hex chunk":              start + "Transfer-Encoding: chunked\r\n\r\n0x" + chunked,
		"vast chunk":             start + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff0" + chunked,
		"bare LF chunk":          start + "Transfer-Encoding: chunked\r\n\r\n" + strings.ReplaceAll(chunked, "\r\n", "\n"),
		"long chunk":             start + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(asked)-3, asked),
	} {
		t.Run(name, func(t *testing.T) {
			before := worker.requests.Load()
			c := testkit.DialRaw(t, f.url)
			c.Send(wire + smuggled)
			c.HalfClose()
			got, _ := c.ReadAll()
			if _, ok := worker.paths.Load("/v1/smuggled"); ok || worker.requests.Load() != before {
				t.Fatalf("it reached the worker; the client got %q", got)
			}
			if got != "" && !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 5") {
				t.Errorf("answered with %q", got)
			}
			if strings.Count(got, "HTTP/1.1 ") > 1 {
				t.Errorf("answered more than once: %q", got)
			}
		})
	}
}

// TestHostile_LengthAndChunks: a request with both framings is refused, or
// read by its chunks and nothing after it on the connection is believed.
func TestHostile_LengthAndChunks(t *testing.T) {
	worker := newSink(t)
	f := newFront(t, gateway.Config{}, worker.url)
	const smuggled = "POST /v1/smuggled HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(asked), asked)
	for _, headers := range []string{"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: Chunked\r\nContent-Length: %d\r\n"} {
		c := testkit.DialRaw(t, f.url)
		c.Send("POST " + chatPath + " HTTP/1.1\r\nHost: h\r\n" + fmt.Sprintf(headers, len(chunks+smuggled)) + "\r\n" + chunks + smuggled)
		got, _ := c.ReadAll() // the gateway hangs up by itself
		if _, ok := worker.paths.Load("/v1/smuggled"); ok {
			t.Errorf("the second request was believed: %q", got)
		}
		if !strings.Contains(got, "Connection: close") {
			t.Errorf("the connection stays open after %q", got)
		}
	}
}

// TestPipelinedRequestsKeepTheirOrder: what is regular is served, each in its
// turn.
func TestPipelinedRequestsKeepTheirOrder(t *testing.T) {
	d := differ(t)
	c := testkit.DialRaw(t, d.Router)
	const n = 20
	var wire strings.Builder
	for i := range n {
		d.Worker.Add(testkit.Script{testkit.Send(testkit.JSON(200, fmt.Sprint(i)))})
		wire.WriteString(request(chatPath, asked, fmt.Sprintf("X-Request-Id: id%d", i)))
	}
	c.Send(wire.String())
	for i := range n {
		if a := c.Answer("POST"); a.Body != fmt.Sprint(i) || a.Header.Get("X-Request-Id") != fmt.Sprintf("id%d", i) {
			t.Fatalf("answer %d is %+v", i, a)
		}
	}
}

// TestHostile_HeaderBombs: headers that are too much are refused with bounded
// memory, in one piece or in a hundred thousand.
func TestHostile_HeaderBombs(t *testing.T) {
	worker := newSink(t)
	f := newFront(t, gateway.Config{}, worker.url)
	var many strings.Builder
	for i := range 120_000 {
		fmt.Fprintf(&many, "a%d: b\r\n", i)
	}
	start := "POST " + chatPath + " HTTP/1.1\r\nHost: h\r\n"
	for name, wire := range map[string]string{
		"one line":     start + "X-Bomb: " + strings.Repeat("b", 8<<20) + "\r\n\r\n",
		"many lines":   start + strings.Repeat(many.String(), 6) + "\r\n",
		"request line": "POST /v1/" + strings.Repeat("x", 8<<20) + " HTTP/1.1\r\nHost: h\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighbour(t, f)
			bomb := []byte(wire) // not the gateway's memory
			peak := testkit.HeapPeak(t)
			const attackers = 4
			var wg sync.WaitGroup
			for range attackers {
				wg.Go(func() {
					c := testkit.DialRaw(t, f.url)
					_, _ = c.Write(bomb) // the gateway hangs up on it
					if got, _ := c.ReadAll(); got != "" && !strings.HasPrefix(got, "HTTP/1.1 4") {
						t.Errorf("answered with %.200q", got)
					}
				})
			}
			wg.Wait()
			n.wasServed(t)
			if most := int64(attackers * 32 << 20); peak() > most {
				t.Errorf("the heap grew by %d MiB, want at most %d", peak()>>20, most>>20)
			}
			t.Logf("the heap grew by %d KiB an attacker", peak()>>10/attackers)
		})
	}
}

// TestHostile_ChunkOverhead: a body that is all framing and no content is cut
// off soon.
func TestHostile_ChunkOverhead(t *testing.T) {
	worker := newSink(t)
	f := newFront(t, gateway.Config{}, worker.url)
	start := "POST " + chatPath + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, piece := range map[string]string{
		"extensions":      "1;" + strings.Repeat("e", 2000) + "\r\nx\r\n",
		"tiny chunks":     "1;eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\r\nx\r\n",
		"endless size":    strings.Repeat("0", 4096),
		"endless ext":     "1;" + strings.Repeat("e", 4096),
		"endless trailer": "0\r\n" + strings.Repeat("X-T: t\r\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			n := newNeighbour(t, f)
			peak := testkit.HeapPeak(t)
			c := testkit.DialRaw(t, f.url)
			c.Send(start)
			sent := 0
			for i := 0; sent < 64<<20; i++ {
				p := piece
				if i > 0 && strings.HasPrefix(name, "endless") {
					p = piece[len(piece)-4096:]
				}
				m, err := c.Write([]byte(p))
				if sent += m; err != nil {
					break
				}
			}
			if sent >= 64<<20 {
				t.Error("64 MiB of it were accepted")
			}
			n.wasServed(t)
			if most := int64(32 << 20); peak() > most {
				t.Errorf("the heap grew by %d MiB", peak()>>20)
			}
			t.Logf("cut off after %d KiB", sent>>10)
		})
	}
	if got := worker.requests.Load(); got == 0 {
		t.Error("no regular request arrived")
	}
}
