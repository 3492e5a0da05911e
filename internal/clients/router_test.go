package clients

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// process is a started command and what it has written so far.
type process struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// start runs the built binary. It is asked to end with the test, and must then
// end well.
func start(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, args...)}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%s ended with %v:\n%s", args[0], err, p)
		}
	})
	return p
}

// await waits for a line and returns its submatches.
func (p *process) await(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var m []string
	testkit.Until(t, pattern, func() bool { m = re.FindStringSubmatch(p.String()); return m != nil })
	return m
}

// router is the built binary, serving.
type router struct{ data, admin string }

// newRouter builds the product and starts it before two emulated workers of the
// model m and the scripted ones.
func newRouter(t *testing.T, s *scripted) router {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "rhizome")
	build := exec.Command("go", "build", "-o", binary, "github.com/rhizome-router/rhizome/cmd/rhizome")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	emulated := start(t, binary, "emulate", "--workers", "2", "--port", "0", "--speedup", "50", "--model", "m")
	emulated.await(t, `--worker '[^']+' \\\n\s+--worker '[^']+'\n`)
	args := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--seed", "1"}
	for _, m := range regexp.MustCompile(`--worker '([^']+)'`).FindAllStringSubmatch(emulated.String(), -1) {
		args = append(args, "--worker", m[1])
	}
	for _, spec := range s.specs {
		args = append(args, "--worker", spec)
	}
	p := start(t, binary, args...)
	m := p.await(t, `msg=serving data=(\S+) admin=(\S+)`)
	r := router{m[1], m[2]}
	testkit.Until(t, "all models are known", func() bool {
		return strings.Count(get(t, r.data+"/v1/models"), `"object":"model"`) == len(s.specs)+1
	})
	return r
}

// get returns the body of a page, empty where there is none.
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
