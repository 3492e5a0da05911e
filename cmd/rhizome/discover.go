package main

import (
	"net"
	"net/netip"
	"slices"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/config"
	"github.com/rhizome-router/rhizome/engine/discover/kube"
)

// discover makes the workers and the sources of a configuration those of the
// replica. On an error nothing has changed.
func (r *replica) discover(cfg config.Config) error {
	sources := cfg.Discovery.Sources(net.DefaultResolver, clock.Real())
	sources = append(sources, kube.Sources(cfg.Discovery.Kubernetes, clock.Real(), r.log)...)
	names := make([]string, len(sources))
	for i, s := range sources {
		names[i] = s.Name
	}
	if err := r.registry.SetStatic(cfg.Workers, names); err != nil {
		return err
	}
	r.discovery.Set(sources)
	return nil
}

// listensAt reports whether an address is one of this replica's own listeners.
func (r *replica) listensAt(at netip.AddrPort) bool {
	for _, l := range []net.Listener{r.data, r.admin} {
		if l == nil {
			continue
		}
		own, ok := l.Addr().(*net.TCPAddr)
		if !ok || own.Port != int(at.Port()) {
			continue
		}
		here := own.AddrPort().Addr().Unmap()
		if here == at.Addr() || here.IsUnspecified() && (at.Addr().IsLoopback() || at.Addr().IsUnspecified() || onThisHost(at.Addr())) {
			return true
		}
	}
	return false
}

// onThisHost reports whether an address is one of this host's interfaces.
func onThisHost(addr netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		ip, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		own, ok := netip.AddrFromSlice(ip.IP)
		return ok && own.Unmap() == addr
	})
}
