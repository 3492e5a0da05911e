package transport

import (
	"net"
	"testing"
)

// A port whose buffers are small says so in the log, once; the library's own line
// goes nowhere if the program says so.
func TestSmallBuffersAreLogged(t *testing.T) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	if err := socket.(*net.UDPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	receive, send, ok := bufferBytes(socket)
	if !ok {
		t.Skip("this system does not tell")
	}
	var log logged
	logBuffers(log.logger(), receive, send)
	if n := log.count("level=WARN", "net.core.rmem_max", "receive_bytes="); n != 1 {
		t.Errorf("%d lines on a buffer of %d bytes:\n%s", n, receive, log.String())
	}
	logBuffers(log.logger(), wantedBufferBytes, wantedBufferBytes)
	if n := log.count("level="); n != 1 {
		t.Errorf("a line on buffers that are large:\n%s", log.String())
	}
}
