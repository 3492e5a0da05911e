package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// FuzzRequestBytes: whatever a body is, the gateway refuses it with an error of
// its own, or the worker gets it byte for byte.
func FuzzRequestBytes(f *testing.F) {
	for _, body := range []string{asked, askedStream, thirtyTools(), `{"model":"m","model":"n"}`, `{"model":"m"`, "\xef\xbb\xbf{}", "",
		`{"model":"m","x":1e400,"y":-0.0,"z":"\ud800"}`, `{"mode\u006c":"m"}`, "{\"model\":\"m\",\"a\":\"\xff\"}", gzipped(asked), `[{"model":"m"}]`} {
		f.Add([]byte(body), "")
	}
	f.Add([]byte(gzipped(asked)), "gzip")
	f.Add([]byte(unbase64(zstdAsked)), "zstd")
	f.Add([]byte(unbase64(brotliAsked)), "br")
	f.Add([]byte(unbase64(gzipZstdAsked)), "gzip, zstd")
	d := differ(f)
	d.Worker.Always(testkit.Send(testkit.JSON(200, "{}")))
	f.Fuzz(func(t *testing.T, body []byte, coding string) {
		if len(body) > 64<<10 || !isToken(coding) {
			return
		}
		headers := []string{"Connection: close"}
		if coding != "" {
			headers = append(headers, "Content-Encoding: "+coding)
		}
		e := d.Via(t, d.Router, request(chatPath, string(body), headers...), testkit.Script{testkit.Send(testkit.JSON(200, "{}"))})
		switch {
		case e.Asked && (e.Request.Body != string(body) || e.Request.Header.Get("Content-Encoding") != coding):
			t.Errorf("the worker got %q", e.Request.Raw)
		case e.Asked && e.Answer.Status != http.StatusOK:
			t.Errorf("the worker was asked, the client got %+v", e.Answer)
		case !e.Asked && (e.Answer.Status < 400 || e.Answer.Status >= 500 || !strings.HasPrefix(e.Answer.Body, `{"error":{"message":`)):
			t.Errorf("refused with %+v", e.Answer)
		}
	})
}

// isToken reports whether s can be sent as the value of Content-Encoding.
func isToken(s string) bool {
	return len(s) < 100 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-, ") == "" && strings.TrimSpace(s) == s
}

// FuzzAnswerBytes: whatever a worker's answer holds and however it is cut, the
// client gets the same bytes, and the same end.
func FuzzAnswerBytes(f *testing.F) {
	f.Add([]byte(oddStream), uint16(7), true, true)
	f.Add([]byte("data: {\"error\":{}}\n\ndata: [DONE]\n\n"), uint16(1), true, true)
	f.Add([]byte("data: [DONE]"), uint16(3), true, false)
	f.Add([]byte(`{"usage":{"prompt_tokens":1,"usage":{"usage":`), uint16(500), false, true)
	f.Add([]byte{}, uint16(0), false, false)
	d := differ(f)
	f.Fuzz(func(t *testing.T, answer []byte, cut uint16, events, whole bool) {
		if len(answer) > 64<<10 {
			return
		}
		ask, kind := request(chatPath, asked, "Connection: close"), "application/json"
		if events { // without stream the gateway doesn't ask for a [DONE]
			kind = "text/event-stream"
		}
		at := min(int(cut), len(answer))
		wire := []string{testkit.Head(200, "Content-Type: "+kind, fmt.Sprintf("Content-Length: %d", len(answer))), string(answer[:at]), string(answer[at:])}
		script := testkit.Script{testkit.Send(wire...)}
		if !whole && at < len(answer) {
			script = testkit.Script{testkit.Send(wire[:2]...), testkit.FIN()}
		}
		e := d.Via(t, d.Router, ask, script)
		broken := !whole && at < len(answer)
		want := string(answer)
		if broken {
			want = want[:at]
		}
		switch {
		case broken && e.Answer.Status == 502 && e.Answer.Broken == "":
		case e.Answer.Status != 200 || e.Answer.Body != want && !broken || !strings.HasPrefix(want, e.Answer.Body) || (e.Answer.Broken != "") != broken:
			t.Errorf("sent %q, the client got %+v", want, e.Answer)
		}
	})
}
