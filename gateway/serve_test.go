package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// served is a rig whose gateway is served by Serve.
func served(t *testing.T, grace time.Duration, script testkit.Script) (r *rig, url string, client *http.Client, stop func(), result chan error) {
	r = memRig(t, Config{}, script)
	mem := testkit.NewNet()
	ctx, cancel := context.WithCancel(t.Context())
	result = make(chan error, 1)
	ln := mem.Listen("front:80")
	go func() { result <- Serve(ctx, ln, r.g, grace, slog.New(slog.DiscardHandler)) }()
	client = &http.Client{Transport: &http.Transport{DialContext: mem.Dial}}
	t.Cleanup(client.CloseIdleConnections)
	return r, "http://front:80", client, cancel, result
}

// TestHostile_HeaderBombsAreRefused before anything is done about them; what
// SDKs send, long tokens included, is far below.
func TestHostile_HeaderBombsAreRefused(t *testing.T) {
	for bytes, want := range map[int]int{100 << 10: 200, 400 << 10: 431} {
		synctest.Test(t, func(t *testing.T) {
			_, url, client, stop, result := served(t, time.Minute, testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
			req, err := http.NewRequestWithContext(t.Context(), "POST", url+chat, strings.NewReader(plainBody))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+strings.Repeat("x", bytes))
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("a header of %d bytes gave %d, want %d", bytes, resp.StatusCode, want)
			}
			stop()
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBR19_DrainLetsStreamsFinish ends the server in the middle of a stream
// that finishes within the grace time.
func TestBR19_DrainLetsStreamsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		r, url, client, stop, result := served(t, time.Minute, testkit.Script{
			testkit.Send(testkit.SSEHead(), testkit.Chunk("data: 1\n\n")), testkit.Wait(more),
			testkit.Send(testkit.Chunk("data: [DONE]\n\n"), testkit.Chunk(""))})
		resp, err := client.Post(url+chat, "application/json", strings.NewReader(streamBody))
		if err != nil {
			t.Fatal(err)
		}
		stop()
		time.AfterFunc(50*time.Second, func() { close(more) })
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.HasSuffix(string(b), "[DONE]\n\n") {
			t.Errorf("got %q, %v", b, err)
		}
		if err := <-result; err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if _, err := client.Get(url + "/healthz"); err == nil {
			t.Error("the listener is still open")
		}
		if res := r.picker.results(); res != "completed" {
			t.Errorf("results %q", res)
		}
	})
}

// TestBR19_StragglersAreToldAndCut: what outlasts the grace time gets an error
// event and a broken transfer, and isn't held against the worker.
func TestBR19_StragglersAreToldAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, url, client, stop, result := served(t, time.Minute, testkit.Script{
			testkit.Send(testkit.SSEHead(), testkit.Chunk("data: 1\n\n")), testkit.Stall()})
		resp, err := client.Post(url+chat, "application/json", strings.NewReader(streamBody))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		stop()
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || !strings.HasPrefix(string(b), "data: 1\n\ndata: {\"error\"") || !strings.Contains(string(b), "shutting_down") {
			t.Errorf("got %q, %v", b, err)
		}
		if d := time.Since(start); d != time.Minute {
			t.Errorf("cut after %v", d)
		}
		if err := <-result; err == nil {
			t.Error("Serve didn't tell that requests were cut off")
		}
		if res := r.picker.results(); res != "cancelled" {
			t.Errorf("results %q", res)
		}
	})
}

func TestServeTellsAListenerFault(t *testing.T) {
	ln := testkit.NewNet().Listen("x:80")
	ln.Close()
	if err := Serve(t.Context(), ln, http.NotFoundHandler(), time.Second, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "x:80") {
		t.Errorf("got %v", err)
	}
}

// TestHTTP2 streams over cleartext HTTP/2, with pauses longer than the write
// limit, and breaks a stream without ending the connection.
func TestHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, url, client, stop, result := served(t, time.Minute, testkit.Script{
			testkit.Send(testkit.SSEHead()), testkit.Wait(time.After(5 * time.Minute)),
			testkit.Send(testkit.Chunk("data: 1\n\n")), testkit.Wait(time.After(6*time.Minute + 30*time.Second)),
			testkit.Send(testkit.Chunk("data: [DONE]\n\n"), testkit.Chunk(""))})
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		client.Transport.(*http.Transport).Protocols = protocols
		r.workers[0].Add(testkit.Script{testkit.Send(testkit.SSEHead(), testkit.Chunk("data: 1\n\n")), testkit.FIN()})
		for _, want := range []string{"data: 1\n\ndata: [DONE]\n\n", "data: 1\n\ndata: {\"error\""} {
			resp, err := client.Post(url+chat, "application/json", strings.NewReader(streamBody))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if broken := strings.Contains(want, "error"); resp.ProtoMajor != 2 || !strings.HasPrefix(string(b), want) || (err != nil) != broken {
				t.Errorf("over %s got %q, %v", resp.Proto, b, err)
			}
		}
		client.CloseIdleConnections()
		stop()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if res := r.picker.results(); res != "completed failed" {
			t.Errorf("results %q", res)
		}
	})
}
