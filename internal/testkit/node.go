package testkit

import (
	"os"
	"os/exec"
	"testing"
)

// Node returns the path of a Node.js to run a real client with. Without one
// the test is skipped, or fails where skips are forbidden.
func Node(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		noPeer(t, "no node found: install Node.js 20 or later to test with its fetch")
	}
	return path
}

// noPeer skips a test that wants a peer this machine lacks, or fails it where
// RHIZOME_TEST_NO_SKIP=1 says that nothing may be skipped.
func noPeer(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("RHIZOME_TEST_NO_SKIP") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
