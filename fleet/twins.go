package fleet

import (
	"context"
	"net/netip"
	"slices"

	"github.com/rhizome-router/rhizome/engine"
)

// isTwin reports whether a worker that was just asked is one that is in the
// fleet under another name: a pod that a list names by its host's name and a
// source by its address, say. Of the two the one that stands first in the list
// stays, on every replica the same; the other is left out of the view for as
// long as that is so.
func (f *Fleet) isTwin(w *worker) bool {
	f.mu.Lock()
	var later *worker
	mine := slices.Index(f.crew.workers, w)
	before := w.twin
	w.twin = nil
	for i, o := range f.crew.workers {
		if mine < 0 || o == w || o.twin != nil || !engine.SameProcess(o.Worker, w.Worker) {
			continue
		}
		if i < mine {
			w.twin = o
		} else {
			later = o
		}
		break
	}
	now := w.twin
	if now != before {
		f.publish()
	}
	f.mu.Unlock()
	switch {
	case now != nil && now != before:
		f.deps.Log.Warn("two workers are one under two names; the second is left out", "first", now.Spec.URL, "second", w.Spec.URL)
	case later != nil:
		f.renew(later) // and then it will find out
	}
	return now != nil
}

func (f *Fleet) hasTwin(w *worker) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.twin != nil
}

// watchName looks where the name of a worker leads until ctx ends. Connections
// that are kept alive would hide that it leads elsewhere now, to what is not the
// same worker any more. A name that can't be looked up, or has several
// addresses, leaves all as it is.
func (f *Fleet) watchName(ctx context.Context, w *worker) {
	if _, err := netip.ParseAddr(w.Host()); err == nil {
		return
	}
	var here, next netip.Addr
	several := false
	for f.deps.Clock.Sleep(ctx, f.cfg.ResolveInterval) == nil {
		lookup, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout)
		addrs, err := f.deps.Resolver.LookupNetIP(lookup, "ip", w.Host())
		cancel()
		if ctx.Err() != nil {
			return
		}
		at, one := single(addrs)
		switch {
		case err != nil || len(addrs) == 0:
			f.deps.Log.Debug("the name of a worker can't be looked up", "worker", w.Spec.URL, "err", err)
		case !one && !several:
			several = true
			f.deps.Log.Warn("the name of a worker has several addresses: if several engines are behind it, find them by discovery.dns", "worker", w.Spec.URL, "addresses", len(addrs))
		case !one:
		case !here.IsValid():
			here = at
		case at == here:
			next = here
		case at != next:
			next = at // once more, and it counts
		default:
			f.deps.Log.Info("the name of a worker leads to another address: it starts anew", "worker", w.Spec.URL, "before", here, "now", at)
			f.renew(w)
			return
		}
	}
}

// single returns the address if there is one, or one of each family.
func single(addrs []netip.Addr) (netip.Addr, bool) {
	var v4, v6 []netip.Addr
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	switch {
	case len(v4) == 1:
		return v4[0], true
	case len(v4) == 0 && len(v6) == 1:
		return v6[0], true
	}
	return netip.Addr{}, false
}
