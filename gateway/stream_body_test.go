package gateway

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestLongBodiesGoOnAsTheyArrive: what is longer than replay_bytes reaches the
// worker while the client still sends, whole, and takes no more memory.
func TestLongBodiesGoOnAsTheyArrive(t *testing.T) {
	const replay = minReplayBytes
	for _, chunked := range []bool{false, true} {
		w := testkit.NewWorker(t)
		w.Always(testkit.Send(testkit.JSON(200, "{}")))
		r := newRig(t, Config{ReplayBytes: replay}, w)
		body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 20*replay) + `"}]}`
		read, write := io.Pipe()
		req, _ := http.NewRequest("POST", r.url+chat, read)
		if !chunked {
			req.ContentLength = int64(len(body))
		}
		held := make(chan int64, 1)
		go func() {
			io.WriteString(write, body[:10*replay])
			held <- r.g.buffered.Load()
			io.WriteString(write, body[10*replay:])
			write.Close()
		}()
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got := w.Next(t)
		want := int64(len(body))
		if chunked {
			want = -1
		}
		if resp.StatusCode != 200 || got.Body != body || got.Length != want {
			t.Errorf("chunked %v: status %d, the worker got %d bytes of length %d", chunked, resp.StatusCode, len(got.Body), got.Length)
		}
		if n := <-held; n > 2*replay {
			t.Errorf("chunked %v: %d bytes were held of ten times replay_bytes", chunked, n)
		}
	}
}

// TestLongBodiesAreBounded: a chunked body that gets too long on its way ends
// the attempt, and the worker gets no whole request of it.
func TestLongBodiesAreBounded(t *testing.T) {
	r := newRig(t, Config{ReplayBytes: minReplayBytes, MaxBodyBytes: 4 * minReplayBytes}, testkit.NewWorker(t), testkit.NewWorker(t))
	body := `{"model":"m","x":"` + strings.Repeat("x", 5*minReplayBytes) + `"}`
	req, _ := http.NewRequest("POST", r.url+chat, io.NopCloser(strings.NewReader(body)))
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r.stop()
	if resp.StatusCode != 413 || r.workers[0].Count()+r.workers[1].Count() != 0 || r.picker.results() != "cancelled" {
		t.Errorf("status %d, %d requests, results %q", resp.StatusCode, r.workers[0].Count(), r.picker.results())
	}
}

// TestALongBodyIsNotSentTwice: once a worker has got what is held nowhere,
// there is no other attempt; before that there is.
func TestALongBodyIsNotSentTwice(t *testing.T) {
	body := `{"model":"m","x":"` + strings.Repeat("x", 8*minReplayBytes) + `"}`
	ok := testkit.Script{testkit.Send(testkit.JSON(200, "{}"))}
	hangUp := testkit.Script{testkit.RST()} // when it has read all
	r := newRig(t, Config{ReplayBytes: minReplayBytes}, testkit.NewWorker(t, hangUp), testkit.NewWorker(t, ok))
	if a := r.post(chat, body); a.status != 502 || r.workers[1].Count() != 0 {
		t.Errorf("after the first worker had it: %+v", a)
	}
	r = newRig(t, Config{ReplayBytes: minReplayBytes}, testkit.NewWorker(t), testkit.NewWorker(t, ok))
	r.workers[0].Close() // nobody there
	if a := r.post(chat, body); a.status != 200 {
		t.Errorf("after no connection: %+v", a)
	} else if got := r.workers[1].Next(t); got.Body != body {
		t.Errorf("the second worker got %d bytes", len(got.Body))
	}
}

// TestAnEarlyAnswerEndsTheUpload: a worker that refuses without reading all is
// believed at once, over either protocol.
func TestAnEarlyAnswerEndsTheUpload(t *testing.T) {
	for _, protocol := range []string{"", ",h2c=true"} {
		server := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(400)
			io.WriteString(w, `{"detail":"no"}`)
		}))
		r := newRig(t, Config{ReplayBytes: minReplayBytes}, testkit.NewWorker(t))
		r.aim(0, server+protocol)
		read, write := io.Pipe()
		go io.WriteString(write, `{"model":"m","x":"`+strings.Repeat("x", 4*minReplayBytes)) // and no more
		req, _ := http.NewRequest("POST", r.url+chat, read)
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		write.Close()
		if resp.StatusCode != 400 || string(answer) != `{"detail":"no"}` {
			t.Errorf("%s: got %d %s", protocol, resp.StatusCode, answer)
		}
	}
}

// formBody is an upload of sound with the field model at a place.
func formBody(t *testing.T, at string, size int) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	if at == "first" {
		m.WriteField("model", "m")
	}
	f, err := m.CreateFormFile("file", "model.wav")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, strings.Repeat("\x00\xff\r\n--", size/6))
	m.WriteField("stream", "true")
	if at == "last" {
		m.WriteField("model", "m")
	}
	m.Close()
	return b.String(), m.FormDataContentType()
}

// TestBR55_MultipartIsRoutedByItsModel wherever the field stands, with the
// bytes untouched.
func TestBR55_MultipartIsRoutedByItsModel(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.Response(200, "\x00\x01binary")))
	for _, size := range []int{1000, 1 << 20} {
		for _, at := range []string{"first", "last", "nowhere"} {
			r := newRig(t, Config{ReplayBytes: minReplayBytes}, w)
			body, contentType := formBody(t, at, size)
			a := r.post("/v1/audio/transcriptions", body, "Content-Type: "+contentType)
			if at == "nowhere" {
				if a.status != 400 || !strings.Contains(a.body, "missing_model") {
					t.Errorf("without a model: %+v", a)
				}
				continue
			}
			if a.status != 200 || a.body != "\x00\x01binary" {
				t.Errorf("model %s, %d bytes: %+v", at, size, a)
				continue
			}
			if got := w.Next(t); got.Body != body || got.Header.Get("Content-Type") != contentType {
				t.Errorf("model %s: the worker got %d bytes, want %d", at, len(got.Body), len(body))
			}
			if q := r.picker.queries[0]; q.Prompt.Model != "m" || !q.Prompt.Stream && size < minReplayBytes {
				t.Errorf("model %s: %+v", at, q.Prompt)
			}
		}
	}
	r := newRig(t, Config{}, w)
	body, contentType := formBody(t, "first", 100)
	for _, broken := range []struct{ body, contentType string }{
		{body[:len(body)-30], contentType}, {body, "multipart/form-data"}, {"nonsense", contentType}, {body, "multipart/form-data; boundary=other"},
	} {
		if a := r.post("/v1/audio/transcriptions", broken.body, "Content-Type: "+broken.contentType); a.status != 400 {
			t.Errorf("%s: %+v", broken.contentType, a)
		}
	}
}

// TestFormsThatServersReadDifferently are refused: two models, of which one
// stands where only some look, and more parts than engines take.
func TestFormsThatServersReadDifferently(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; " + name + "\r\n\r\n" + value + "\r\n"
	}
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"two models":       {part(`name="model"`, "org/n") + part(`name="model"`, "m"), 400},
		"a hidden model":   {part(`name="model"`, "org/n") + part(`name*=utf-8''model`, "m"), 400},
		"the same twice":   {part(`name="model"`, "m") + part(`name="model"`, "m"), 200},
		"very many parts":  {strings.Repeat(part(`name="x"`, ""), maxParts) + part(`name="model"`, "m"), 400},
		"quite many parts": {strings.Repeat(part(`name="x"`, ""), maxParts-2) + part(`name="model"`, "m"), 200},
	} {
		r := newRig(t, Config{}, w)
		if a := r.post("/v1/audio/transcriptions", c.body+"--b--\r\n", "Content-Type: multipart/form-data; boundary=b"); a.status != c.status {
			t.Errorf("%s gave %+v", name, a)
		}
	}
}
