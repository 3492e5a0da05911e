//go:build linux

package real

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// owner is the run that things belong to: its process, told apart from a later
// one of the same number by when it started, and which of the process's runs.
type owner struct {
	pid   int
	ticks uint64
	run   uint64
}

const namePrefix = "rzchaos-"

var ownedName = regexp.MustCompile(`^rzchaos-(\d+)-(\d+)-(\d+)-`)

// self is one of this process's runs.
func self(run uint64) (owner, error) {
	ticks, err := startTicks(os.Getpid())
	if err != nil {
		return owner{}, fmt.Errorf("read when this process started: %w", err)
	}
	return owner{os.Getpid(), ticks, run}, nil
}

// name is what one of the run's things is called.
func (o owner) name(what string) string {
	return fmt.Sprintf("%s%d-%d-%d-%s", namePrefix, o.pid, o.ticks, o.run, what)
}

// alive reports whether the run's process still goes on.
func (o owner) alive() bool {
	ticks, err := startTicks(o.pid)
	return err == nil && ticks == o.ticks
}

// ownerOf reads whose a thing is.
func ownerOf(name string) (owner, bool) {
	m := ownedName.FindStringSubmatch(name)
	if m == nil {
		return owner{}, false
	}
	pid, errPID := strconv.Atoi(m[1])
	ticks, errTicks := strconv.ParseUint(m[2], 10, 64)
	run, errRun := strconv.ParseUint(m[3], 10, 64)
	return owner{pid, ticks, run}, errors.Join(errPID, errTicks, errRun) == nil
}

// startTicks is when a process started, in the kernel's ticks since boot. A
// process that has ended and was not waited for counts as gone.
func startTicks(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command in parentheses, which may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const state, started = 0, 19
	if len(fields) <= started || fields[state] == "Z" || fields[state] == "X" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[started], 10, 64)
}

// perNamespace is where `ip netns exec` finds files to show in place of those in
// /etc, by namespace.
const perNamespace = "/etc/netns"

// Sweep removes what runs left that ended without cleaning up, and says how many
// namespaces and directories that was. Runs that go on are left alone.
func Sweep() (removed int, err error) {
	return sweep(func(o owner) bool { return !o.alive() })
}

func sweep(gone func(owner) bool) (removed int, err error) {
	list, err := namespaces()
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, name := range list {
		if o, ours := ownerOf(name); ours && gone(o) {
			errs = append(errs, removeNamespace(name))
			removed++
		}
	}
	for _, pattern := range []string{filepath.Join(perNamespace, namePrefix+"*"), filepath.Join(os.TempDir(), namePrefix+"*")} {
		paths, _ := filepath.Glob(pattern) // the pattern is well-formed
		for _, path := range paths {
			if o, ours := ownerOf(filepath.Base(path)); ours && gone(o) {
				errs = append(errs, os.RemoveAll(path))
				removed++
			}
		}
	}
	_ = os.Remove(perNamespace) // where nothing of anyone's is left in it
	return removed, errors.Join(errs...)
}

// namespaces lists the network namespaces that have names.
func namespaces() ([]string, error) {
	out, err := ip("netns", "list")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 { // an id may follow
			names = append(names, f[0])
		}
	}
	return names, nil
}

// removeNamespace ends the processes in a namespace of ours and removes it, and
// with it its devices and rules.
func removeNamespace(name string) error {
	out, err := ip("netns", "pids", name)
	if err != nil {
		return err
	}
	for text := range strings.FieldsSeq(out) {
		if pid, err := strconv.Atoi(text); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	_, err = ip("netns", "del", name)
	return err
}

// ip runs iproute2's command and returns what it says.
func ip(args ...string) (string, error) { return command("", "ip", args...) }

// command runs a program with an input and returns what it says.
func command(input, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
