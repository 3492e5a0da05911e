package gateway

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// canWatchHalves says that a reset is noticed on a connection whose other side
// has ended.
const canWatchHalves = true

// waitForReset waits until a connection is reset, or is given up because nobody
// acknowledges; an error says that it was closed or its read deadline came.
func waitForReset(raw syscall.RawConn) error {
	return raw.Read(func(fd uintptr) bool {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		return err != nil || info.State == unix.BPF_TCP_CLOSE
	})
}

// askOften has TCP ask every second whether the client is there, and give up
// after three questions without an answer.
func askOften(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { // without these the system's own times hold
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3)
	})
}
