package transport

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/quic-go/quic-go"
)

func asTransport(err error, to **quic.TransportError) bool { return errors.As(err, to) }

// proxy passes UDP packets on to one address and back, and may change or drop
// them on the way there and back.
type proxy struct {
	front  *net.UDPConn
	target *net.UDPAddr
	change func(i int, b []byte) // of the ith packet to the target

	mu    sync.Mutex
	cut   bool
	backs map[netip.AddrPort]*net.UDPConn
	work  sync.WaitGroup
}

func newProxy(t testing.TB, target netip.AddrPort, change func(i int, b []byte)) *proxy {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{front: front, target: net.UDPAddrFromAddrPort(target), change: change,
		backs: make(map[netip.AddrPort]*net.UDPConn)}
	p.work.Go(p.there)
	t.Cleanup(func() {
		_ = front.Close()
		p.mu.Lock()
		for _, b := range p.backs {
			_ = b.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.front.LocalAddr().String() }

// setCut drops everything, or nothing.
func (p *proxy) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

func (p *proxy) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

func (p *proxy) there() {
	b := make([]byte, 2048)
	for i := 0; ; i++ {
		n, from, err := p.front.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		back := p.backs[from]
		if back == nil {
			if back, err = net.DialUDP("udp", nil, p.target); err != nil {
				p.mu.Unlock()
				continue
			}
			p.backs[from] = back
			p.work.Go(func() { p.back(back, from) })
		}
		p.mu.Unlock()
		if p.isCut() {
			continue
		}
		p.change(i, b[:n])
		_, _ = back.Write(b[:n])
	}
}

func (p *proxy) back(from *net.UDPConn, to netip.AddrPort) {
	b := make([]byte, 2048)
	for {
		n, err := from.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && !p.isCut() {
			_, _ = p.front.WriteToUDPAddrPort(b[:n], to)
		}
	}
}
