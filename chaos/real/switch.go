//go:build linux

package real

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rhizome-router/rhizome/clock"
)

const tunnelDevice = "tun0"

// tunSwitch carries IP packets between one TUN device in each replica's
// namespace, through whatever weather there is. The third byte of the address
// says whose a packet is.
type tunSwitch struct {
	ports   []*os.File
	wg      sync.WaitGroup
	weather atomic.Pointer[weather]

	mu      sync.Mutex // guards rng, and late
	rng     *rand.Rand
	late    map[*time.Timer]bool
	closed  bool
	carried atomic.Uint64
	dropped atomic.Uint64
}

// newSwitch makes a device in each namespace and begins to carry.
func newSwitch(replicas []*namespace, seed uint64) (*tunSwitch, error) {
	s := &tunSwitch{rng: clock.Rand(seed, "chaos/real/switch"), late: make(map[*time.Timer]bool)}
	s.weather.Store(new(weather))
	for _, r := range replicas {
		port, err := openTunnel(r)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.ports = append(s.ports, port)
	}
	for _, port := range s.ports {
		s.wg.Go(func() { s.carry(port) })
	}
	return s, nil
}

// openTunnel makes the device in a namespace. It is gone when it is closed.
func openTunnel(in *namespace) (port *os.File, err error) {
	err = in.do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		req, err := unix.NewIfreq(tunnelDevice)
		if err == nil {
			req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
		}
		if err != nil {
			unix.Close(fd)
			return fmt.Errorf("make a TUN device: %w", err)
		}
		port = os.NewFile(uintptr(fd), tunnelDevice)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := in.ip("link", "set", tunnelDevice, "up"); err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return port, nil
}

// maxPacket is what a device's MTU lets through, and then some.
const maxPacket = 2048

// carry reads one device until it is closed.
func (s *tunSwitch) carry(from *os.File) {
	buf := make([]byte, maxPacket)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		to, ok := s.receiver(buf[:n])
		if !ok {
			s.dropped.Add(1)
			continue
		}
		s.mu.Lock()
		fates := s.weather.Load().fates(n, s.rng)
		s.mu.Unlock()
		if len(fates) == 0 {
			s.dropped.Add(1)
		}
		for _, d := range fates {
			if d == 0 {
				s.deliver(to, buf[:n])
			} else {
				s.deliverLater(d, to, append([]byte(nil), buf[:n]...))
			}
		}
	}
}

// receiver reads whose an IPv4 packet is.
func (s *tunSwitch) receiver(packet []byte) (*os.File, bool) {
	const header, destination = 20, 16
	if len(packet) < header || packet[0]>>4 != 4 {
		return nil, false
	}
	n := int(packet[destination+2]) - replicaThird
	if n < 0 || n >= len(s.ports) {
		return nil, false
	}
	return s.ports[n], true
}

func (s *tunSwitch) deliver(to *os.File, packet []byte) {
	if _, err := to.Write(packet); err != nil {
		s.dropped.Add(1) // it has no address for now, or is closed
		return
	}
	s.carried.Add(1)
}

func (s *tunSwitch) deliverLater(d time.Duration, to *os.File, packet []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.late) >= maxLate {
		s.dropped.Add(1)
		return
	}
	s.wg.Add(1)
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		defer s.wg.Done()
		s.mu.Lock()
		delete(s.late, t)
		s.mu.Unlock()
		s.deliver(to, packet)
	})
	s.late[t] = true
}

// maxLate bounds the packets on their way.
const maxLate = 100_000

// close stops carrying and removes the devices.
func (s *tunSwitch) close() error {
	s.mu.Lock()
	s.closed = true
	for t := range s.late { // order-free: all of them
		if t.Stop() {
			s.wg.Done()
		}
	}
	s.late = nil
	s.mu.Unlock()
	var errs []error
	for _, port := range s.ports {
		errs = append(errs, port.Close())
	}
	s.wg.Wait()
	return errors.Join(errs...)
}
