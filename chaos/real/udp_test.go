//go:build linux

package real

import (
	"net"
	"testing"
	"time"
)

// station is a UDP socket in a namespace.
type station struct {
	address string
	conn    *net.UDPConn
}

func listen(t *testing.T, in *namespace, address string) (s station) {
	t.Helper()
	err := in.do(func() (err error) {
		s.conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(address), Port: meshPort})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.address = address
	return s
}

// reaches sends a few packets, and reports whether one came.
func (s station) reaches(t *testing.T, to station, bytes int) bool {
	t.Helper()
	for range 3 {
		if _, err := s.conn.WriteToUDP(make([]byte, bytes), to.conn.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	came := false
	for buf := make([]byte, 2*bytes); ; {
		if _, err := to.conn.Read(buf); err != nil {
			return came
		}
		if !came { // what follows it is on its way
			came = true
			if err := to.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
