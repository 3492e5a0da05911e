package engine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// ErrForbidden says that a host or an address may not be a worker's.
var ErrForbidden = errors.New("not allowed as a worker")

// Guard says which hosts may be workers, so that whoever can name one can't
// make the router talk to whatever it can reach. A name is checked when a
// worker is made, the address it leads to each time it is dialled: names can
// lead elsewhere later. That holds for the sockets of its KV events too. The zero value allows all but addresses that are never
// a worker's: unspecified, multicast and link-local ones, among them those of
// clouds' metadata services.
type Guard struct {
	// Hosts are the names that workers may have, as host, as *.domain for all
	// below it, or as a range of addresses (10.0.0.0/8), whatever their names.
	// A name's addresses must not be loopback's then, unless a range allows
	// them. Default: any.
	Hosts []string `yaml:"hosts,omitempty"`
	// Own reports whether an address is one of the router's own listeners, which
	// is no worker's: requests would go round in circles. Nil: none is.
	Own func(netip.AddrPort) bool `yaml:"-"`
}

// Validate says which of the hosts can't be read.
func (g Guard) Validate() error {
	var errs []error
	for _, h := range g.Hosts {
		_, rangeErr := netip.ParsePrefix(h)
		name := strings.TrimPrefix(h, "*.")
		if rangeErr != nil && (name == "" || strings.ContainsFunc(name, notInHost)) {
			errs = append(errs, fmt.Errorf("hosts: %q is no host, no *.domain and no range of addresses", h))
		}
	}
	return errors.Join(errs...)
}

// Check reports whether a host may be a worker; the error wraps ErrForbidden.
// A name may, for now, where ranges are given: its addresses are checked when
// it is dialled.
func (g Guard) Check(host string) error {
	addr, err := netip.ParseAddr(host)
	if err == nil {
		return g.checkAddr(addr, g.named(host))
	}
	if len(g.Hosts) == 0 || g.named(host) || g.hasRanges() {
		return nil
	}
	return fmt.Errorf("%w: host %s is not in the list of hosts", ErrForbidden, host)
}

// CheckSpec reports whether the worker that a canonical spec names may be one,
// as far as that can be told without connecting to it. The error wraps
// ErrForbidden.
func (g Guard) CheckSpec(spec Spec) error {
	base, err := url.Parse(spec.URL)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if err := g.Check(base.Hostname()); err != nil {
		return fmt.Errorf("worker %s: %w", spec.URL, err)
	}
	if addr, err := netip.ParseAddrPort(base.Host); err == nil && g.own(addr) {
		return fmt.Errorf("worker %s: %w: this router itself listens there", spec.URL, ErrForbidden)
	}
	if err := g.checkSockets(spec); err != nil {
		return fmt.Errorf("worker %s: %w", spec.URL, err)
	}
	return nil
}

func (g Guard) own(at netip.AddrPort) bool {
	return g.Own != nil && g.Own(netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()))
}

// checkSockets reports whether the sockets of KV events that a spec names may
// be a worker's. One that the engine dials in to is our own.
func (g Guard) checkSockets(s Spec) error {
	for _, endpoint := range [...]string{s.Events, s.Replay} {
		if endpoint == "" {
			continue
		}
		host, _, err := splitEndpoint(endpoint)
		if err != nil {
			return err
		}
		if host == "" {
			continue
		}
		if err := g.Check(host); err != nil {
			return fmt.Errorf("%s: %w", endpoint, err)
		}
	}
	return nil
}

// socketDialer returns a dialer for the host of a socket, as dialer does.
func (g Guard) socketDialer(endpoint string) *net.Dialer {
	host, _, _ := splitEndpoint(endpoint) // who dials reads it again
	return g.dialer(host)
}

// named reports whether the list names a host.
func (g Guard) named(host string) bool {
	host = strings.ToLower(host)
	for _, h := range g.Hosts {
		h = strings.ToLower(h)
		if domain, ok := strings.CutPrefix(h, "*"); h == host || ok && strings.HasSuffix(host, domain) {
			return true
		}
	}
	return false
}

func (g Guard) hasRanges() bool {
	for _, h := range g.Hosts {
		if _, err := netip.ParsePrefix(h); err == nil {
			return true
		}
	}
	return false
}

// checkAddr reports whether an address may be a worker's; named says that its
// host is in the list.
func (g Guard) checkAddr(addr netip.Addr, named bool) error {
	addr = addr.Unmap().WithZone("")
	switch {
	case g.inRange(addr):
		return nil
	case addr.IsUnspecified(), addr.IsMulticast(), addr.IsLinkLocalUnicast():
		return fmt.Errorf("%w: %s is an address of no worker", ErrForbidden, addr)
	case len(g.Hosts) > 0 && !named:
		return fmt.Errorf("%w: address %s is in none of the ranges", ErrForbidden, addr)
	}
	return nil
}

// deadPeerTimeout is how long a peer may acknowledge nothing, and keepAlive
// asks it in time: a worker that vanished is noticed within half a minute, one
// that computes for an hour is not disturbed.
const deadPeerTimeout = 25 * time.Second

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// dialer returns a dialer for a host that checks the address it connects to,
// after the name was resolved.
func (g Guard) dialer(host string) *net.Dialer {
	named := g.named(host)
	_, literal := netip.ParseAddr(host)
	return &net.Dialer{Timeout: connectTimeout, KeepAliveConfig: keepAlive,
		Control: func(_, address string, c syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrForbidden, err)
			}
			if len(g.Hosts) > 0 && literal != nil && host != "localhost" && at.Addr().IsLoopback() && !g.inRange(at.Addr()) {
				return fmt.Errorf("%w: %s leads to %s", ErrForbidden, host, at.Addr())
			}
			if err := g.checkAddr(at.Addr(), named); err != nil {
				return err
			}
			if g.own(at) {
				return fmt.Errorf("%w: this router itself listens at %s", ErrForbidden, at)
			}
			return limitSilence(c)
		}}
}

func (g Guard) inRange(addr netip.Addr) bool {
	for _, h := range g.Hosts {
		if p, err := netip.ParsePrefix(h); err == nil && p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}
