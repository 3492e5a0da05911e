//go:build unix

package transport

import (
	"net"
	"syscall"
)

// bufferBytes returns how large the kernel's buffers of a socket are; ok is false
// where it can't be told.
func bufferBytes(socket net.PacketConn) (receive, send int, ok bool) {
	c, is := socket.(syscall.Conn)
	if !is {
		return 0, 0, false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	get := func(fd uintptr, option int) int {
		n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, option)
		ok = ok && err == nil
		return n
	}
	ok = true
	err = raw.Control(func(fd uintptr) { receive, send = get(fd, syscall.SO_RCVBUF), get(fd, syscall.SO_SNDBUF) })
	return receive, send, ok && err == nil
}
