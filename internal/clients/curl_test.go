package clients

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// curl asks as a person at a shell does, over HTTP/1.1 and HTTP/2.
func curl(t *testing.T, r router) {
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Error("no curl found")
		return
	}
	body := func(model string, more string) string {
		return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]%s}`, model, more)
	}
	long := body("m", `,"max_tokens":1,"user":"`+strings.Repeat("u", 1100<<10)+`"`) // beyond 1 MiB curl asks for leave
	chat := r.data + "/v1/chat/completions"
	for _, version := range []string{"--http1.1", "--http2-prior-knowledge"} {
		for name, c := range map[string]struct {
			args  []string
			stdin string
			exit  []int
			want  string
		}{
			"plain":        {[]string{"-d", body("m", `,"max_tokens":2`), chat}, "", []int{0}, `"finish_reason":"length"`},
			"stream":       {[]string{"-N", "-d", body("m", `,"max_tokens":2,"stream":true`), chat}, "", []int{0}, "data: [DONE]"},
			"head":         {[]string{"-I", r.data + "/v1/models/m"}, "", []int{0}, "200"},
			"slashes":      {[]string{"-d", body("m", `,"max_tokens":2`), r.data + "//v1//chat/completions/"}, "", []int{0}, `"finish_reason":"length"`},
			"expect":       {[]string{"--data-binary", "@-", chat}, long, []int{0}, `"finish_reason":"length"`},
			"from stdin":   {[]string{"-T", "-", "-X", "POST", chat}, body("m", `,"max_tokens":2`), []int{0}, `"finish_reason":"length"`},
			"fail":         {[]string{"-f", "-d", body("nobody-has-it", ""), chat}, "", []int{22}, ""},
			"dies":         {[]string{"-N", "-d", body("dies", `,"stream":true`), chat}, "", []int{18, 56, 92}, `data: {"error":`},
			"cut short":    {[]string{"-d", body("cut-short", ""), chat}, "", []int{18, 56, 92}, `"chat.completion"`},
			"wrong key":    {[]string{"-H", "X-Api-Key: none", "-d", body("m", ""), chat}, "", []int{0}, `"invalid_api_key"`},
			"no such path": {[]string{r.data + "/metrics"}, "", []int{0}, `"unknown_url"`},
		} {
			args := append([]string{"-sS", "-m", "20", version, "-H", "Content-Type: application/json"}, c.args...)
			if name != "wrong key" {
				args = append(args, "-H", "Authorization: Bearer "+key)
			}
			cmd := exec.CommandContext(t.Context(), path, args...)
			cmd.Stdin = strings.NewReader(c.stdin)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			code := 0
			if err := cmd.Run(); err != nil {
				if code = -1; errors.As(err, new(*exec.ExitError)) {
					code = cmd.ProcessState.ExitCode()
				}
			}
			if code == 92 {
				c.want = "" // curl drops what arrived together with the end of an HTTP/2 stream
			}
			if !slices.Contains(c.exit, code) || !strings.Contains(out.String(), c.want) {
				t.Errorf("curl %s, %s: exit %d, want %v and %s: %.500s %s", version, name, code, c.exit, c.want, out.String(), errs.String())
			}
		}
	}
}
