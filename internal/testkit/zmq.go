package testkit

import (
	"os/exec"
	"testing"
)

// PythonZMQ returns the path of a python3 that has pyzmq, and so the real
// libzmq, for tests that need a true peer. Without one it skips the test, or
// fails it where RHIZOME_TEST_NO_SKIP=1 says that nothing may be skipped.
func PythonZMQ(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if exec.CommandContext(t.Context(), path, "-c", "import zmq").Run() == nil {
			return path
		}
	}
	noPeer(t, "no python3 with pyzmq found: install python3-zmq to test against libzmq")
	return ""
}
