//go:build linux

package real

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asRun is the variable that has this test's program be a run that makes a
// ground's things and then waits to be killed.
const asRun = "RHIZOME_TEST_AS_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(asRun) != "" {
		if err := waitToBeKilled(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// waitToBeKilled makes namespaces, a switch, a file and a process that would
// sleep for an hour, says who it is, and waits.
func waitToBeKilled() error {
	o, err := self(7)
	if err != nil {
		return err
	}
	n, err := newNetwork(o, 2, 1)
	if err != nil {
		return err
	}
	if _, err := newSwitch(n.replicas, 1); err != nil {
		return err
	}
	if err := n.name([]string{"10.77.10.1"}); err != nil {
		return err
	}
	dir := filepath.Join(os.TempDir(), o.name("run"))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	p, err := newStarter().start(n.replicas[0], filepath.Join(dir, "log"), nil, "sleep", "3600")
	if err != nil {
		return err
	}
	fmt.Println(o.pid, o.ticks, o.run, p.pid())
	select {}
}

// needGround skips a test where namespaces can't be made, and fails it where
// nothing may be skipped.
func needGround(t *testing.T) {
	t.Helper()
	err := tryOut(1)
	if os.Geteuid() != 0 {
		err = errors.New("not root")
	}
	switch {
	case err == nil:
	case os.Getenv("RHIZOME_TEST_NO_SKIP") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// A run that is killed leaves no process, and nothing at all after the next
// run's sweep, which leaves runs alone that go on.
func TestSweepAfterAKill(t *testing.T) {
	needGround(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), asRun+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var o owner
	var child int
	if _, err := fmt.Fscan(bufio.NewReader(out), &o.pid, &o.ticks, &o.run, &child); err != nil {
		t.Fatal(err)
	}
	if left := leftBy(t, o); len(left) != 6 { // hub, workers, two replicas, what they are shown, and the directory
		t.Errorf("the run has %q", left)
	}
	if _, err := Sweep(); err != nil || len(leftBy(t, o)) != 6 {
		t.Errorf("a run that goes on was swept away: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // with the signal
	if n, err := Sweep(); err != nil || n < 6 {
		t.Errorf("%d things were swept away: %v", n, err)
	}
	if left := leftBy(t, o); len(left) != 0 {
		t.Errorf("left over: %q", left)
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := startTicks(child); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("its process %d still runs", child)
		}
	}
}

// leftBy lists what there is of a run, devices and rules apart, which go with
// their namespaces.
func leftBy(t *testing.T, o owner) (left []string) {
	t.Helper()
	list, err := namespaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{perNamespace, os.TempDir()} {
		paths, _ := filepath.Glob(filepath.Join(dir, o.name("*")))
		list = append(list, paths...)
	}
	shown := false
	for _, name := range list {
		if x, ours := ownerOf(filepath.Base(name)); !ours || x != o {
			continue
		}
		if strings.HasPrefix(name, perNamespace) {
			if shown {
				continue // one file for each replica
			}
			shown = true
		}
		left = append(left, name)
	}
	return left
}

// Packets that are cut don't come, those the other way do; through the switch
// low MTUs cut long ones alone.
func TestCutsAndTheSwitch(t *testing.T) {
	needGround(t)
	o, err := self(7)
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNetwork(o, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}()
	s, err := newSwitch(n.replicas, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for i := range 2 {
		if err := n.move(i, 0, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range []func(int, int) string{replicaAddress, tunnelAddress} {
		a, b := listen(t, n.replicas[0], address(0, 0)), listen(t, n.replicas[1], address(1, 0))
		a.meets(t, b)
		if err := n.cut([]way{{0, 1}}, true); err != nil {
			t.Fatal(err)
		}
		if a.reaches(t, b, 100) || !b.reaches(t, a, 100) {
			t.Errorf("%s is cut off %s, and that is not what is seen", a.address, b.address)
		}
		if err := n.cut([]way{{0, 1}}, false); err != nil {
			t.Fatal(err)
		}
		if !a.reaches(t, b, 100) {
			t.Errorf("%s is no longer cut off %s, and that is not what is seen", a.address, b.address)
		}
		s.weather.Store(&weather{mtu: 600})
		if a.reaches(t, b, 1000) == (address(0, 0) == tunnelAddress(0, 0)) || !a.reaches(t, b, 100) {
			t.Errorf("from %s with a low MTU in the switch, that is not what is seen", a.address)
		}
		s.weather.Store(new(weather))
		a.conn.Close()
		b.conn.Close()
	}
}
