package sim

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

// missed is who leads an agreement, and whom it has missed since when: a replica
// that reaches most of those that run leads, and has those agreed to be dead that
// it missed for fenceAfter, as lease.Group does. What is agreed on reaches who can
// reach it.
type missed struct {
	s      *Stage
	leader *replica
	// present are the incarnations of those that the leader reaches, inc those that it
	// heard of, and since is when it began to miss whom; all by name.
	present, inc map[string]uint64
	since        map[string]float64
	fenced       map[lease.Origin]bool
}

// Agree lets replicas agree on who is dead, and up to where promises are settled,
// while most of those that run reach each other. To be called once, before Play.
func (s *Stage) Agree() {
	s.agreed = s.agree()
	s.agreed.missed = &missed{s: s, present: make(map[string]uint64), inc: make(map[string]uint64), since: make(map[string]float64), fenced: make(map[lease.Origin]bool)}
}

// Fenced reports whether a replica knows that an incarnation of another was
// agreed to be dead.
func (s *Stage) Fenced(n int, r core.Replica) bool {
	p := s.agreed.parts[n]
	return p.life == s.w.replicas[n].life && p.state.Fenced(lease.Origin(r))
}

// Fences is how many incarnations were agreed to be dead.
func (s *Stage) Fences() int { return s.agreed.Fences }

// Leader returns which replica leads the agreement, if one does.
func (s *Stage) Leader() (n int, leads bool) {
	if l := s.agreed.missed.leader; l != nil && l.awake() {
		return l.n, true
	}
	return 0, false
}

func (m *missed) reaches(r *replica) bool {
	return m == nil || m.leader != nil && (m.leader == r || m.s.open(m.leader, r))
}

// look finds out who leads, and proposes what it finds.
func (m *missed) look(a *agreement, now float64) {
	if m == nil {
		return
	}
	m.elect()
	if m.leader == nil {
		clear(m.since)
		return
	}
	for _, r := range m.s.w.replicas {
		if r.awake() && m.reaches(r) {
			m.present[r.mesh.name] = r.mesh.self().Inc
		}
	}
	var peers []core.PeerState
	m.leader.mesh.node.Do(func(now clock.Instant, c *core.Core) { peers = c.Peers(now) })
	for _, p := range peers { // by name
		if p.Alive { // and says which incarnation it is
			delete(m.since, p.Name)
			m.inc[p.Name] = max(m.inc[p.Name], m.present[p.Name])
			continue
		}
		if _, known := m.since[p.Name]; !known {
			m.since[p.Name] = now
		}
		dead := lease.Origin{Name: p.Name, Inc: m.inc[p.Name]}
		if now-m.since[p.Name] >= micros(fenceAfter) && !m.fenced[dead] {
			m.fenced[dead] = true
			a.propose(lease.Command{Kind: lease.Fence, Origin: dead})
		}
	}
}

// elect leaves the leader where it is while most of those that run reach it.
func (m *missed) elect() {
	if m.leader != nil && m.leads(m.leader) {
		return
	}
	m.leader = nil
	clear(m.since)
	for _, r := range m.s.w.replicas {
		if m.leads(r) {
			m.leader = r
			return
		}
	}
}

func (m *missed) leads(r *replica) bool {
	run, reached := 0, 0
	for _, o := range m.s.w.replicas {
		if !o.awake() {
			continue
		}
		run++
		if o == r || m.s.open(o, r) {
			reached++
		}
	}
	return r.awake() && 2*reached > run
}
