package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestBR19_StragglersAreNoFaultOfTheProcess: a stream that never ends is told so
// and cut at the end of the grace time, and the process ends as it was asked to,
// with 0.
func TestBR19_StragglersAreNoFaultOfTheProcess(t *testing.T) {
	a := newGatedWorker(t)
	file := filepath.Join(t.TempDir(), "rhizome.yaml")
	write(t, file, "workers: ["+a.url+"]\n")
	s := serveFile(t, file, "--grace", "50ms")
	s.awaitAdmin(t, "/workers", `"m"`)
	_, rest := s.begin(t)
	code := make(chan int, 1)
	go func() { code <- s.stop() }()
	end, err := io.ReadAll(rest)
	if err == nil || !strings.Contains(string(end), "shutting_down") {
		t.Errorf("the stream ended with %q, %v", end, err)
	}
	if c := <-code; c != 0 || !strings.Contains(s.stderr.String(), "were cut off") {
		t.Errorf("exit %d:\n%s", c, s.stderr)
	}
}
