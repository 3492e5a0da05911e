package mesh

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// TestMassRestart: all replicas but one crash and are back at the same addresses
// before anybody notices. They find each other and what the one kept, and when
// the deaths of their former lives are noticed they are not taken for those.
func TestMassRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 6)
		defer p.stopAll()
		p.within(5*time.Second, "all are connected", func() bool { return up(p.nodes...) })
		p.nodes[0].publish(t, 0, 100)
		for i, s := range p.nodes[1:] {
			s.endpoint.Crash()
			s.stop()
			<-s.done
			p.nodes[1+i] = p.start(1 + i)
		}
		p.within(3*time.Second, "all are connected again", func() bool { return up(p.nodes...) })
		p.within(time.Second, "all have what one of them kept", func() bool {
			for _, s := range p.nodes {
				if s.at() != 100 {
					return false
				}
			}
			return true
		})
		for range 1000 { // the former lives are noticed, and forgotten
			if time.Sleep(10 * time.Millisecond); !up(p.nodes...) {
				t.Fatal("a connection to a living replica was lost")
			}
		}
		alive := 0
		for _, peer := range p.nodes[0].Peers() {
			if peer.Alive {
				alive++
			}
		}
		if alive != len(p.nodes)-1 {
			t.Errorf("%d members are alive: %+v", alive, p.nodes[0].Peers())
		}
	})
}

// Addresses take turns: those where nobody answers any more, however many and
// however slowly, don't keep the others waiting.
func TestAddressesTakeTurns(t *testing.T) {
	b := newAddressBook(256)
	addr := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7400)
	}
	const addresses, dials = 200, 8
	for i := range addresses {
		b.here(addr(i), "former")
		b.gone(addr(i), "former", 0)
	}
	at := clock.Instant(0)
	last := make(map[netip.AddrPort]clock.Instant)
	for range 300 { // each dial takes a second and is in vain
		at = at.Add(dialTimeout)
		due := b.due(at, netip.AddrPort{}, dials)
		for _, a := range due {
			last[a] = at
			b.tried(a, false, at.Add(dialTimeout))
		}
	}
	for i := range addresses {
		if waited := at.Sub(last[addr(i)]); last[addr(i)] == 0 || waited > 2*addresses/dials*dialTimeout {
			t.Errorf("%v was tried %v ago", addr(i), waited)
		}
	}
}
