package lease

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// feed is what was applied to a machine and not looked at yet.
type feed struct {
	mu   sync.Mutex
	all  []fed
	more chan struct{}
}

type fed struct {
	m       *machine
	entries []entry // nil: another state as a whole
	index   uint64  // of the state after it
}

// applied is told by machines what came; within their locks.
func (g *Group) applied(m *machine, entries []entry) {
	g.news.mu.Lock()
	g.news.all = append(g.news.all, fed{m, entries, m.state.Index()})
	g.news.mu.Unlock()
	select {
	case g.news.more <- struct{}{}:
	default:
	}
}

// drain looks at what was applied: who waits for it is told, and so are the
// replicas that don't vote, if this one leads.
func (g *Group) drain() {
	g.news.mu.Lock()
	all := g.news.all
	g.news.all = nil
	g.news.mu.Unlock()
	for _, f := range all {
		g.show(f.m)
		if f.m != g.table.Load() {
			continue // it does not know yet what is known here
		}
		if f.entries == nil {
			g.done = max(g.done, f.index)
			g.ring = ring{before: f.index}
			g.adopted(f.m)
			continue
		}
		old := 0
		for old < len(f.entries) && f.entries[old].index <= g.done {
			old++
		}
		g.report(f.entries[old:])
	}
	g.spread()
}

// show makes a voter's machine the table once it knows as much as the present
// one, or is of another cluster.
func (g *Group) show(m *machine) {
	v, table := g.voter.Load(), g.table.Load()
	if m == table || v == nil || v.machine != m {
		return
	}
	if Cluster(g.shown.Load()) == v.cluster {
		m.mu.RLock()
		behind := m.state.Index() < g.done
		m.mu.RUnlock()
		if behind {
			return
		}
	} else if !v.first {
		g.done = 0
	}
	g.shown.Store(uint64(v.cluster))
	g.table.Store(m)
}

// report tells of entries that are new.
func (g *Group) report(entries []entry) {
	if len(entries) == 0 {
		return
	}
	now, self := g.deps.Clock.Now(), g.origin()
	for i := range entries {
		e := &entries[i]
		g.done = e.index
		if len(e.events) == 0 {
			continue
		}
		g.expire.Applied(now, e.events)
		for j := range e.events {
			ev := &e.events[j]
			g.counts.event[ev.Kind].Add(1)
			switch ev.Kind {
			case Fenced:
				g.fencedOrigin(ev.Command.Origin, self)
			case Checkpointed:
				if g.deps.Checkpoint != nil {
					g.deps.Checkpoint(ev.Command.Lows, ev.Command.Marks)
				}
			}
		}
		if g.deps.Events != nil {
			g.deps.Events(e.events)
		}
		if e.no != 0 {
			g.waiting.done(e.from, e.no, e.events)
		}
	}
	g.ring.add(entries)
}

// fencedOrigin acts on the death of an incarnation. If it is this replica's own,
// which the others have missed, it goes on as another.
func (g *Group) fencedOrigin(dead, self Origin) {
	if dead == self {
		g.inc.Store(self.Inc + 1)
		g.deps.Log.Warn("the other replicas took this one for dead; it goes on under a new number", "incarnation", self.Inc+1)
	}
	if g.deps.Fence != nil {
		g.deps.Fence(dead)
	}
}

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

// receive takes a peer's words.
func (g *Group) receive(from string, b []byte) {
	now := g.deps.Clock.Now()
	kind, n, r := hear(b)
	switch kind {
	case wordAdvert:
		if a := readAdvert(r, n); r.End() == nil && (len(g.peers) < maxPeers || g.peers[from] != nil) {
			g.peers[from] = &heardPeer{a, now}
		}
	case wordInvite:
		need(r, n, 1)
		cluster := Cluster(r.Uint(1<<64 - 1))
		if r.End() == nil && g.own.Server == "" && !g.leaving.Load() && cluster != 0 && (g.own.Cluster == 0 || g.own.Cluster == cluster) {
			g.start(now, cluster, false)
		}
	case wordPropose:
		need(r, n, 1)
		if p := r.Data(maxProposal); r.End() == nil {
			g.admit(p)
		}
	case wordRead:
		need(r, n, 2)
		if no, k := r.Uint(1<<64-1), readKey(r); r.End() == nil {
			g.answer(from, no, k)
		}
	case wordAnswer:
		if a := readAnswer(r, n); r.End() == nil {
			g.waiting.answered(a)
		}
	case wordAsk:
		need(r, n, 2)
		if cluster, index := Cluster(r.Uint(1<<64-1)), r.Uint(1<<64-1); r.End() == nil {
			g.serve(from, cluster, index)
		}
	case wordEntries:
		if cluster, before, entries := readEntries(r, n); r.End() == nil {
			g.takeEntries(now, cluster, before, entries)
		}
	case wordPart:
		if p := readPart(r, n); r.End() == nil {
			g.takePart(now, from, p)
		}
	default:
		return // of a later version
	}
	if err := r.End(); err != nil {
		g.counts.malformed.Add(1)
		g.deps.Log.Warn("a peer said what can't be read about leases", "peer", from, "err", err)
	}
}

// answer reads for a peer; as many at once as there are slots.
func (g *Group) answer(to string, no uint64, k Key) {
	select {
	case g.reads <- struct{}{}:
	default:
		return
	}
	g.answering.Go(func() {
		a := g.read(no, k)
		<-g.reads
		g.deps.Node.Tell(to, core.Agreement, a.words())
	})
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
	m := newMachine(s, g.applied)
	g.shown.Store(uint64(p.cluster))
	g.done = s.Index()
	g.table.Store(m)
	g.ring = ring{before: s.Index()}
	g.counts.snapshots.Add(1)
	g.adopted(m)
}

// bring keeps the leases that are known here, to be proposed to the cluster that
// this one ends for, once what was agreed there is known: the others may have
// taken this replica for dead meanwhile.
func (g *Group) bring() {
	m := g.table.Load()
	m.mu.RLock()
	defer m.mu.RUnlock()
	g.brought = m.state.Leases()
}

// unpack proposes the leases that were brought along. Workflows that have one
// here already keep that.
func (g *Group) unpack() {
	if len(g.brought) == 0 || Cluster(g.shown.Load()) != g.own.Cluster {
		return
	}
	for chunk := range slices.Chunk(g.brought, maxBatch) {
		commands := make([]Command, 0, len(chunk))
		for _, l := range chunk {
			commands = append(commands, Command{Kind: Acquire, Key: l.Key, Holder: l.Holder})
		}
		g.Propose(commands...)
	}
	g.brought = nil
}

// adopted acts on a state that came as a whole: on the deaths and settled
// promises in it.
func (g *Group) adopted(m *machine) {
	m.mu.RLock()
	fenced, lows := m.state.settled()
	m.mu.RUnlock()
	for _, o := range fenced {
		g.fencedOrigin(o, g.origin())
	}
	if g.deps.Checkpoint != nil && len(lows) > 0 {
		g.deps.Checkpoint(lows, nil)
	}
}

// counts are what happened since the group was made.
type counts struct {
	dropped, limited, malformed, snapshots, changes atomic.Uint64
	event                                           [numEvents]atomic.Uint64
}
