package gateway

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the goldens in testdata")

// TestErrors compares every error a client can be given with the golden.
func TestErrors(t *testing.T) {
	r := newRig(t, Config{MaxBodyBytes: 2000, BufferBudgetBytes: 4000}, refusing(t))
	var out strings.Builder
	ask := func(what string, a got) {
		fmt.Fprintf(&out, "%s\n%d", what, a.status)
		for _, h := range []string{"Content-Type", "Allow", "Retry-After"} {
			if v := a.header.Get(h); v != "" {
				fmt.Fprintf(&out, " %s=%s", h, v)
			}
		}
		fmt.Fprintf(&out, "\n%s\n", a.body)
	}
	ask("unknown path", r.post("/v2/chat", "{}"))
	ask("path with a detour", r.post("/v1/../metrics", "{}"))
	ask("path with an escaped slash", r.post("/v1/x%2fy", "{}"))
	ask("metrics are not here", r.post("/metrics", "{}"))
	ask("wrong method for models", r.post("/v1/models", "{}"))
	ask("body is no JSON", r.post(chat, "{\"model\":\"m\",\n nonsense}"))
	ask("body ends early", r.post(chat, `{"model":"m"`))
	ask("body is no object", r.post(chat, `["m"]`))
	ask("empty body", r.post(chat, ""))
	ask("model of the wrong type", r.post(chat, `{"model":7}`))
	ask("no model", r.post(chat, `{"messages":[]}`))
	ask("unknown model", r.post(chat, `{"model":"gpt-5"}`))
	ask("too large", r.post(chat, `{"model":"m","x":"`+strings.Repeat("x", 2000)+`"}`))
	ask("multipart", r.post("/v1/audio/transcriptions", "--x--", "Content-Type: multipart/form-data; boundary=x"))
	ask("unknown encoding", r.post(chat, "x", "Content-Encoding: compress"))
	ask("no JSON and no claim to be", r.post(chat, "model=m", "Content-Type: application/x-www-form-urlencoded"))
	ask("messages have errors of their own", r.post("/v1/messages", `{"model":"gpt-5"}`))
	ask("state that is gone", r.post("/v1/responses/resp_1/cancel", "{}"))
	ask("corrupt encoding", r.post(chat, "x", "Content-Encoding: gzip"))
	ask("worker refuses", r.post(chat, plainBody))
	r.picker.workers = nil
	ask("no worker", r.post(chat, plainBody))
	r.picker.err = fmt.Errorf("secret internals")
	ask("internal", r.post(chat, plainBody))

	golden := "testdata/errors.golden"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("errors differ from %s (-rewrite renews it):\n%s", golden, out.String())
	}
	if strings.Contains(out.String(), "127.0.0.1") || strings.Contains(out.String(), "secret") {
		t.Error("an error tells internals")
	}
}

func TestEveryFailureHasAnAnswer(t *testing.T) {
	for _, f := range failures {
		d := describe(fmt.Errorf("wrapped: %w", f.is))
		if d.status < 400 || d.say == "" || d.kind == "" || d.code == "" || (d.status == 503) != (d.retryAfterSeconds > 0) {
			t.Errorf("%v is answered with %+v", f.is, d)
		}
	}
}
