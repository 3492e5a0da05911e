package lease

import (
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// ring is what was agreed on last, for those who follow.
type ring struct {
	before  uint64 // the entry before the first
	entries []entry
	sent    int // of entries, to those who follow
}

const maxRing = 4096

func (r *ring) add(entries []entry) {
	r.entries = append(r.entries, entries...)
	if over := len(r.entries) - maxRing; over >= maxRing/4 {
		r.before = r.entries[over-1].index
		r.entries = slices.Delete(r.entries, 0, over)
		r.sent = max(0, r.sent-over)
	}
}

// after returns the entries after index, or false if they are not all here.
func (r *ring) after(index uint64) ([]entry, bool) {
	if index < r.before {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(r.entries, index+1, func(e entry, at uint64) int {
		switch {
		case e.index < at:
			return -1
		case e.index > at:
			return 1
		}
		return 0
	})
	return r.entries[i:], true
}

// maxFrameBytes bounds the entries of one frame, one at least.
const maxFrameBytes = core.MaxToldBytes - maxProposal/2

// spread sends what is new to the replicas that don't vote, if this one leads.
func (g *Group) spread() {
	r := &g.ring
	if r.sent == len(r.entries) {
		return
	}
	if g.own.Leads {
		for _, name := range g.followers() {
			g.sendEntries(name, r.entries[r.sent:], r.beforeAt(r.sent))
		}
	}
	r.sent = len(r.entries)
}

func (r *ring) beforeAt(i int) uint64 {
	if i == 0 {
		return r.before
	}
	return r.entries[i-1].index
}

// followers are the live replicas that are no servers of the own cluster.
func (g *Group) followers() (names []string) {
	for name, p := range g.peers { // order-free: sorted below
		if !slices.ContainsFunc(g.own.Servers, func(s server) bool { return s.ID == p.Server && p.Cluster == g.own.Cluster }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (g *Group) sendEntries(to string, entries []entry, before uint64) {
	for len(entries) > 0 {
		n, bytes := 0, 0
		for n < len(entries) && (n == 0 || bytes+len(entries[n].bytes)+32 < maxFrameBytes) {
			bytes += len(entries[n].bytes) + 32
			n++
		}
		if !g.deps.Node.Tell(to, core.Agreed, entriesWords(g.own.Cluster, before, entries[:n])) {
			return
		}
		before, entries = entries[n-1].index, entries[n:]
	}
}

// catchUp asks the leader for what is missing here, if this replica doesn't
// vote.
func (g *Group) catchUp(now clock.Instant) {
	l := g.leader.Load()
	if l == nil || g.own.Server != "" || l.name == g.deps.Self || l.cluster != g.own.Cluster || now.Sub(g.asked) < askEvery {
		return
	}
	if Cluster(g.shown.Load()) == l.cluster && g.own.Index >= l.index {
		return
	}
	g.ask(now, l)
}

const askEvery = 250 * time.Millisecond

func (g *Group) ask(now clock.Instant, l *lead) {
	g.asked = now
	cluster, index := Cluster(g.shown.Load()), g.own.Index
	if cluster != l.cluster {
		index = 0
	}
	g.deps.Node.Tell(l.name, core.Agreement, askWords(cluster, index))
}

// serve sends a peer what it lacks, if this replica leads.
func (g *Group) serve(to string, cluster Cluster, index uint64) {
	if !g.own.Leads {
		return
	}
	if cluster == g.own.Cluster {
		if missing, ok := g.ring.after(index); ok {
			g.sendEntries(to, missing, index)
			return
		}
	}
	m := g.table.Load()
	m.mu.RLock()
	b, at := m.state.Append(nil), m.state.Index()
	m.mu.RUnlock()
	parts := (len(b) + partBytes - 1) / partBytes
	for i := range parts {
		p := part{g.own.Cluster, at, i, parts, b[i*partBytes : min(len(b), (i+1)*partBytes)]}
		if !g.deps.Node.Tell(to, core.Agreed, p.words()) {
			return
		}
	}
}

// takeEntries applies what the leader sent, if nothing before it is missing.
func (g *Group) takeEntries(now clock.Instant, cluster Cluster, before uint64, entries []entry) {
	l := g.leader.Load()
	if g.own.Server != "" || l == nil || cluster != l.cluster {
		return
	}
	m := g.table.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	if cluster != Cluster(g.shown.Load()) || before > m.state.Index() {
		if now.Sub(g.asked) >= askEvery {
			g.own.Index = m.state.Index()
			g.ask(now, l)
		}
		return
	}
	fresh := entries[:0]
	for _, e := range entries {
		if e.index > m.state.Index() {
			fresh = append(fresh, m.apply(e.index, e.bytes))
		}
	}
	if len(fresh) > 0 {
		g.applied(m, fresh)
	}
}

// assembly is a snapshot of which some parts came.
type assembly struct {
	from    string
	cluster Cluster
	index   uint64
	parts   int
	bytes   []byte
	next    int
}

// takePart gathers a snapshot, whose parts come in order, and shows it once it
// is whole.
func (g *Group) takePart(now clock.Instant, from string, p part) {
	l, a := g.leader.Load(), &g.parts
	if g.own.Server != "" || l == nil || p.cluster != l.cluster || p.parts < 1 || p.no >= p.parts {
		return
	}
	if p.no == 0 {
		*a = assembly{from: from, cluster: p.cluster, index: p.index, parts: p.parts}
	}
	if a.from != from || a.cluster != p.cluster || a.index != p.index || a.parts != p.parts || a.next != p.no {
		return
	}
	a.bytes, a.next = append(a.bytes, p.bytes...), a.next+1
	g.asked = now // what was asked for is on its way
	if a.next < a.parts {
		return
	}
	s, err := Restore(a.bytes)
	g.parts = assembly{}
	if err != nil {
		g.counts.malformed.Add(1)
		g.deps.Log.Warn("the leader's leases can't be read", "peer", from, "err", err)
		return
	}
	m := newMachine(p.cluster, s, g.applied)
	g.shown.Store(uint64(p.cluster))
	g.done = s.Index()
	g.table.Store(m)
	g.ring = ring{before: s.Index()}
	g.counts.snapshots.Add(1)
	g.adopted(m)
}
