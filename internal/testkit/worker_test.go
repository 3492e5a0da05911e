package testkit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const plainRequest = "POST /v1/x?y=1 HTTP/1.1\r\nhost: w\r\nX-Odd: a\r\ncontent-length: 3\r\n\r\nabc"

func TestWorkerSaysExactlyItsScriptAndKeepsTheRequest(t *testing.T) {
	answer := SSE("one", "[DONE]")
	w := NewWorker(t, Script{SendSplit(answer, 1, 20, 60)}, Script{Send(JSON(429, "{}", "Retry-After: 3")), FIN()})
	c, err := net.Dial("tcp", strings.TrimPrefix(w.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, plainRequest+plainRequest)
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := answer + JSON(429, "{}", "Retry-After: 3"); string(got) != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for range 2 {
		r := w.Next(t)
		if r.Raw != plainRequest || r.Body != "abc" || r.Target != "/v1/x?y=1" || r.Length != 3 {
			t.Errorf("request %+v", r)
		}
	}
	if w.Count() != 2 {
		t.Errorf("%d requests, want 2", w.Count())
	}
}

func TestWorkerResets(t *testing.T) {
	w := NewWorker(t, Script{Send("HTTP/1.1 200 OK\r\n"), RST()})
	c, err := net.Dial("tcp", strings.TrimPrefix(w.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, plainRequest)
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read ended with %v, want a reset", err)
	}
}

func TestWorkerInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := NewNet()
		told := make(chan struct{})
		w := NewWorkerOn(t, mem.Listen("w:80"), Script{Send(SSEHead()), Wait(told), Send(Chunk("x")), Stall()})
		if _, err := mem.Dial(t.Context(), "tcp", "elsewhere:80"); err == nil {
			t.Error("a dial to nobody succeeded")
		}
		transport := &http.Transport{DialContext: mem.Dial}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Post(w.URL()+"/v1/x", "text/plain", strings.NewReader("abc"))
		if err != nil {
			t.Fatal(err)
		}
		r := w.Next(t)
		start := time.Now()
		time.AfterFunc(time.Hour, func() { close(told) })
		if b, err := bufio.NewReader(resp.Body).ReadByte(); b != 'x' || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		if d := time.Since(start); d != time.Hour {
			t.Errorf("the answer took %v of virtual time, want 1 h", d)
		}
		resp.Body.Close()
		<-r.PeerGone
	})
}
