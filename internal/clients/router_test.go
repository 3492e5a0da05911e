package clients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
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
type router struct {
	data, admin string
	process     *process
}

// configFor is a configuration that knows the key of everyone, and for each
// library one that is let in once a second to one model.
func configFor(libraries []string) string {
	var b strings.Builder
	hash := func(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }
	fmt.Fprintf(&b, "gateway:\n  keys:\n    - {name: everyone, sha256: %s}\n", hash(key))
	for _, l := range libraries {
		fmt.Fprintf(&b, "    - {name: %s, sha256: %s, models: [m], requests_per_second: 1}\n", l, hash(limitedKey(l)))
	}
	return b.String()
}

// newRouter builds the product and starts it before two emulated workers of the
// model m and the scripted ones.
func newRouter(t *testing.T, s *scripted, libraries ...string) router {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "rhizome")
	build := exec.Command("go", "build", "-o", binary, "github.com/rhizome-router/rhizome/cmd/rhizome")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	emulated := start(t, binary, "emulate", "--workers", "2", "--port", "0", "--speedup", "50", "--model", "m")
	emulated.await(t, `--worker '[^']+' \\\n\s+--worker '[^']+'\n`)
	config := filepath.Join(t.TempDir(), "rhizome.yaml")
	if err := os.WriteFile(config, []byte(configFor(libraries)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--config", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--seed", "1"}
	for _, m := range regexp.MustCompile(`--worker '([^']+)'`).FindAllStringSubmatch(emulated.String(), -1) {
		args = append(args, "--worker", m[1])
	}
	for _, spec := range s.specs {
		args = append(args, "--worker", spec)
	}
	p := start(t, binary, args...)
	m := p.await(t, `msg=serving data=(\S+) admin=(\S+)`)
	r := router{m[1], m[2], p}
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
	req.Header.Set("Authorization", "Bearer "+key)
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
