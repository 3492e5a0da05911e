package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// Resolver looks names up; *net.Resolver is the one of the product.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// lookupTimeout bounds one look at a name.
const lookupTimeout = 5 * time.Second

// dnsSource is one name whose addresses, or SRV records, are workers.
type dnsSource struct {
	cfg      DNSConfig
	resolver Resolver
	clock    clock.Clock
}

// run looks the name up until ctx ends. A look that fails leaves the last list
// in force for KeepFor, in which a blip of DNS goes by; then nobody is there.
func (s *dnsSource) run(ctx context.Context, sink Sink) {
	seen := s.clock.Now() // the last good look
	ever, told := false, true
	for {
		found, err := s.look(ctx)
		switch now := s.clock.Now(); {
		case ctx.Err() != nil:
			return
		case err == nil:
			seen, ever, told = now, true, true
			sink.Found(found)
		default:
			sink.Failed(err)
			if told && now.Sub(seen) > s.cfg.KeepFor && (ever || notFound(err)) {
				told = false
				sink.Found(nil)
			}
		}
		if s.clock.Sleep(ctx, s.cfg.Interval) != nil {
			return
		}
	}
}

func (s *dnsSource) look(ctx context.Context) ([]Found, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if !s.cfg.SRV {
		addrs, err := s.addresses(ctx, s.cfg.Name)
		if err != nil {
			return nil, err
		}
		var found []Found
		for _, a := range addrs {
			found = append(found, Found{Spec: s.cfg.Pool.Spec(a.String(), s.cfg.Port)})
		}
		return found, nil
	}
	_, records, err := s.resolver.LookupSRV(ctx, "", "", s.cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("look up SRV of %s: %w", s.cfg.Name, err)
	}
	slices.SortFunc(records, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port))
	})
	var found []Found
	for _, r := range records {
		// The target names a worker for good; the fleet looks where it leads.
		found = append(found, Found{Spec: s.cfg.Pool.Spec(strings.TrimSuffix(r.Target, "."), int(r.Port))})
		if len(found) == MaxWorkers {
			break
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("look up SRV of %s: no usable record", s.cfg.Name)
	}
	return found, nil
}

// notFound reports whether DNS says that there is no such name, or nothing
// under it, as of a service without endpoints.
func notFound(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound
}

// addresses returns a name's IPv4 addresses in order, or the IPv6 ones where
// there are none: a pod that has both is one worker.
func (s *dnsSource) addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	all, err := s.resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", name, err)
	}
	var v4, v6 []netip.Addr
	for _, a := range all {
		if a = a.Unmap(); a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	if len(v4) == 0 {
		v4 = v6
	}
	if len(v4) == 0 {
		return nil, fmt.Errorf("look up %s: %w", name, errors.New("no address"))
	}
	slices.SortFunc(v4, netip.Addr.Compare)
	v4 = slices.Compact(v4)
	return v4[:min(len(v4), MaxWorkers)], nil
}
