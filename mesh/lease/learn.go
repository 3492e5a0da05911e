package lease

import (
	"sync"
	"sync/atomic"

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
		g.report(f.m.cluster, f.entries[old:])
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
func (g *Group) report(cluster Cluster, entries []entry) {
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
			g.waiting.done(e.from, e.no, outcome{e.events, place{cluster, e.index}})
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
	g.work.Go(func() {
		a := g.read(no, k)
		<-g.reads
		g.deps.Node.Tell(to, core.Agreement, a.words())
	})
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
	dropped, limited, malformed, snapshots, changes, spurious atomic.Uint64
	event                                                     [numEvents]atomic.Uint64
}
