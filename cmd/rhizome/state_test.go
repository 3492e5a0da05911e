package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
)

// What a router learned is there again after a restart, and a file that is
// damaged is set aside with a word, not with a failure.
func TestStateOutlivesTheRouter(t *testing.T) {
	preset, err := model.PresetByName("llama3-8b-h100")
	if err != nil {
		t.Fatal(err)
	}
	group, err := emulator.StartGroup(t.Context(), emulator.GroupConfig{Workers: 2, AnyPorts: true,
		Config: emulator.Config{Model: "m", Preset: preset, Speedup: 50}})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "rhizome.yaml")
	workers := "  - " + strings.Join(group.Specs(), "\n  - ") + "\n"
	if err := os.WriteFile(file, []byte("workers:\n"+workers+"gateway:\n  trust_hints: true\nstate:\n  dir: "+filepath.Join(dir, "state")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() (*served, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &served{stderr: &lines{more: make(chan struct{}, 1)}}
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, []string{"serve", "--config", file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--seed", "1"}, io.Discard, s.stderr)
		}()
		m := s.stderr.await(t, `msg=serving data=(\S+) admin=(\S+)`)
		s.data, s.admin = m[1], m[2]
		s.awaitReady(t)
		return s, func() {
			http.DefaultClient.CloseIdleConnections()
			cancel()
			if code := <-ended; code != 0 {
				t.Fatalf("exit %d: %s", code, s.stderr)
			}
		}
	}
	head := strings.Repeat("You are a helpful assistant with a lot to say. ", 200)
	ask := func(s *served, user string) string {
		body := fmt.Sprintf(`{"model":"m","max_tokens":4,"messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s"}]}`, head, user)
		r, err := http.NewRequest(http.MethodPost, s.data+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("x-agent-workflow-id", "flow")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", answer.Status, text, err)
		}
		return answer.Header.Get("x-rhizome-worker")
	}

	s, stop := start()
	s.awaitAdmin(t, "/metrics", `rhizome_prompt_learning_questions_total{about="class"} 2`)
	worker := ask(s, "one")
	s.awaitAdmin(t, "/metrics", `rhizome_prompt_learned_total{event="told"} 1`)
	ask(s, "two")
	s.awaitAdmin(t, "/metrics", `rhizome_prompt_learned_entries{state="trusted"} 1`)
	stop()

	s, stop = start()
	if log := s.stderr.String(); !strings.Contains(log, "state restored") || !strings.Contains(log, "prompts=1") || !strings.Contains(log, "sessions=1") {
		t.Errorf("the log says nothing of the state: %s", log)
	}
	s.awaitAdmin(t, "/metrics", `rhizome_prompt_learning_questions_total{about="class"} 2`)
	if again := ask(s, "three"); again != worker {
		t.Errorf("the session moved from %s to %s", worker, again)
	}
	s.awaitAdmin(t, "/metrics", `rhizome_prompt_learned_lookups_total{result="hit"} 1`)
	s.awaitAdmin(t, "/metrics", `rhizome_route_prompts_total{keys="learned"} 1`)
	stop()

	if err := os.WriteFile(filepath.Join(dir, "state", "rhizome.state"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, stop = start()
	ask(s, "four")
	if log := s.stderr.String(); !strings.Contains(log, "starting without what was learned before") || !strings.Contains(log, "rhizome.state.damaged") {
		t.Errorf("the log says nothing of a damaged file: %s", log)
	}
	stop()
}
