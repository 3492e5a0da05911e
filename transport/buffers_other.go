//go:build !unix

package transport

import "net"

// bufferBytes returns nothing: this system is not asked.
func bufferBytes(net.PacketConn) (receive, send int, ok bool) { return 0, 0, false }
