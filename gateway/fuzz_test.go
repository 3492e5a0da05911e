package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// FuzzRequest sends any body under any path and header: it reaches the worker
// as it is or is answered with an error of the right shape; nothing is left
// behind.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{chat, "/v1/messages", responses, responses + "/resp_1", "/v1/audio/transcriptions", "//v1//x/../y", "/tokenize/"} {
		f.Add(path, "application/json", "", []byte(odd))
		f.Add(path, "multipart/form-data; boundary=b", "", []byte("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n"))
		f.Add(path, "", "gzip, zstd", []byte("x"))
		f.Add(path, "text/plain", "deflate", []byte("\x78\x9c"))
	}
	r := newRig(f, Config{MaxBodyBytes: 1 << 20, BufferBudgetBytes: 1 << 22, ReplayBytes: minReplayBytes,
		Models: map[string]ModelConfig{"alias": {To: []SplitConfig{{Model: "m"}}, Rewrites: rewriteNames}}}, testkit.NewWorker(f))
	var sent []byte
	r.g.do = func(_ *engine.Worker, req *http.Request) (*http.Response, error) {
		defer req.Body.Close()
		var err error
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2}, nil
	}
	f.Fuzz(func(t *testing.T, path, contentType, coding string, body []byte) {
		if !strings.HasPrefix(path, "/") || len(body) > 1<<19 {
			return
		}
		req, err := http.NewRequest("POST", "http://r/", bytes.NewReader(body))
		if err != nil {
			return
		}
		req.URL.Path = path
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Content-Encoding", coding)
		answer := httptest.NewRecorder()
		sent = nil
		r.g.ServeHTTP(answer, req)
		switch {
		case answer.Code == 200 && !strings.Contains(string(body), "alias") && coding == "" && answer.Body.String() == "{}" && !bytes.Equal(sent, body):
			t.Fatalf("%q became %q", body, sent)
		case answer.Code >= 400 && !strings.HasPrefix(answer.Body.String(), `{"error":{`) && !strings.HasPrefix(answer.Body.String(), `{"type":"error"`):
			t.Fatalf("status %d with %q", answer.Code, answer.Body)
		case answer.Code == 500:
			t.Fatalf("internal error: %s", answer.Body)
		}
		if n := r.g.buffered.Load(); n != 0 {
			t.Fatalf("%d bytes are left", n)
		}
	})
}

// FuzzUsageStripper: of any bytes, cut anywhere, only whole usage events go.
func FuzzUsageStripper(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[],"+usageJSON+"}\n\ndata: [DONE]\n\n"), uint(3))
	f.Add([]byte("data: x\r\n\r\ndata: {\"usage\":{},\"choices\":[]}\r\r"), uint(1))
	f.Fuzz(func(t *testing.T, stream []byte, step uint) {
		strip := func(step int) []byte {
			var s usageStripper
			var out []byte
			for rest := stream; len(rest) > 0; {
				n := min(step, len(rest))
				out = append(out, s.Write(rest[:n])...)
				rest = rest[n:]
			}
			return append(out, s.Close()...)
		}
		whole := strip(len(stream) + 1)
		if len(stream) <= maxHeldEventBytes {
			if got := strip(1 + int(step%64)); !bytes.Equal(got, whole) {
				t.Fatalf("cut, %q became %q; in one piece %q", stream, got, whole)
			}
		}
		if !bytes.Contains(stream, usageName) && !bytes.Equal(whole, stream) {
			t.Fatalf("%q became %q", stream, whole)
		}
	})
}
