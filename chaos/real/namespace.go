//go:build linux

package real

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// namespace is one network namespace.
type namespace struct {
	name string
	fd   *os.File
}

// namedNamespaces is where iproute2 keeps them.
const namedNamespaces = "/run/netns"

func newNamespace(name string) (*namespace, error) {
	if _, err := ip("netns", "add", name); err != nil {
		return nil, err
	}
	fd, err := os.Open(filepath.Join(namedNamespaces, name))
	if err != nil {
		return nil, err
	}
	s := &namespace{name, fd}
	return s, s.ip("link", "set", "lo", "up")
}

func (s *namespace) ip(args ...string) error {
	_, err := ip(append([]string{"-n", s.name}, args...)...)
	return err
}

// run runs a program in the namespace, which the thread that starts it is in.
func (s *namespace) run(input, name string, args ...string) error {
	return s.do(func() error {
		_, err := command(input, name, args...)
		return err
	})
}

// rule replaces the namespace's rules for packets.
func (s *namespace) rule(text string) error { return s.run(text, "nft", "-f", "-") }

// do runs f on a thread that is in the namespace. Sockets and devices that it
// opens stay there.
func (s *namespace) do(f func() error) (err error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", s.name, err)
	}
	defer home.Close()
	if err := unix.Setns(int(s.fd.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", s.name, err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, and is thrown away with its goroutine.
		return errors.Join(err, fmt.Errorf("leave namespace %s: %w", s.name, back))
	}
	runtime.UnlockOSThread()
	return err
}

// dial connects from within the namespace. The address must be numeric, so that
// no other goroutine is asked for it.
func (s *namespace) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	d := net.Dialer{Timeout: dialPatience}
	err = s.do(func() (err error) {
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

const dialPatience = 5 * time.Second
