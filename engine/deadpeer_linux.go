package engine

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSilence makes a connection fail when what was sent stays unacknowledged
// for deadPeerTimeout: a peer that vanished without a word would otherwise
// swallow requests for a quarter of an hour.
func limitSilence(c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadPeerTimeout.Milliseconds()))
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}
