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

// reaches sends packets a few times, and reports whether one came.
func (s station) reaches(t *testing.T, to station, bytes int) bool {
	t.Helper()
	came := false
	for range 4 {
		if _, err := s.conn.WriteToUDP(make([]byte, bytes), to.conn.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Fatal(err)
		}
		if came = to.hears(t, 100*time.Millisecond); came {
			break
		}
	}
	for to.hears(t, 20*time.Millisecond) { // what follows it is on its way
	}
	return came
}

// meets waits until two reach each other: a link that was made just now may take
// a while to carry anything.
func (s station) meets(t *testing.T, other station) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !s.reaches(t, other, 100) || !other.reaches(t, s, 100); {
		if time.Now().After(deadline) {
			t.Fatalf("%s and %s don't reach each other", s.address, other.address)
		}
	}
}

func (s station) hears(t *testing.T, patience time.Duration) bool {
	t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, err := s.conn.Read(make([]byte, maxPacket))
	return err == nil
}
