package engine

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBR45_ADeadPeerIsNoticed: connections to workers give up on a peer that
// acknowledges nothing, whether something waits to be sent or not.
func TestBR45_ADeadPeerIsNoticed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := Guard{}.dialer("127.0.0.1").DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		for name, want := range map[int]int{unix.TCP_USER_TIMEOUT: 25000, unix.TCP_KEEPIDLE: 10, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3} {
			if got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name); err != nil || got != want {
				t.Errorf("option %d is %d, want %d (%v)", name, got, want, err)
			}
		}
	})
}
