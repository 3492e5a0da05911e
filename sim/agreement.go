package sim

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

// agreement is what a stage's replicas agree on: one log of proposals, which each
// replica applies in order and in its own time. How a log comes about is Raft's
// matter, and is not played; there is always a leader.
type agreement struct {
	s       *Stage
	log     []agreed
	parts   []*part // by replica
	dead    []deadReplica
	checked float64
	missed  *missed // who leads and whom it misses; nil: all reach all

	Fences, Checkpoints int // agreed on
}

// agreed is an entry of the log, and when it was agreed on.
type agreed struct {
	at    float64
	entry []byte
}

// part is how far one replica's present life is with the log.
type part struct {
	state *lease.State
	life  int
	next  int
}

type deadReplica struct {
	origin lease.Origin
	at     float64
}

const (
	// agreeEvery is how often replicas look whether something was agreed on.
	agreeEvery = 50 * time.Millisecond
	// fenceAfter is how long a replica is dead before the others agree on it, from
	// when they know, and settleEvery how often promises are settled: as
	// lease.Group has it.
	fenceAfter  = 10 * time.Second
	settleEvery = 10 * time.Second
	// maxSettledMarks bounds the marks of a checkpoint.
	maxSettledMarks = 1024
)

// agree lets a stage's replicas agree on fences and checkpoints.
func (s *Stage) agree() *agreement {
	a := &agreement{s: s}
	for range s.w.replicas {
		a.parts = append(a.parts, &part{state: lease.NewState()})
	}
	s.every(agreeEvery, a.tick)
	return a
}

// propose has commands agreed on.
func (a *agreement) propose(commands ...lease.Command) {
	for _, c := range commands {
		switch c.Kind {
		case lease.Fence:
			a.Fences++
		case lease.Checkpoint:
			a.Checkpoints++
		}
	}
	p := lease.Proposal{Commands: commands}
	a.log = append(a.log, agreed{micros(a.s.Now()), p.Append(nil)})
}

// self is a replica's present incarnation.
func (r *replicated) self() (o lease.Origin) {
	r.node.Do(func(_ clock.Instant, c *core.Core) { o = lease.Origin(c.Self()) })
	return o
}

// died notes the death of a replica, which is to be agreed on.
func (a *agreement) died(n int) {
	a.dead = append(a.dead, deadReplica{a.s.w.replicas[n].mesh.self(), micros(a.s.Now())})
}

// tick does what a leader does, and lets replicas apply what has reached them.
func (a *agreement) tick(now float64) {
	a.missed.look(a, now)
	for len(a.dead) > 0 && now-a.dead[0].at >= silenceMicros+micros(fenceAfter) {
		a.propose(lease.Command{Kind: lease.Fence, Origin: a.dead[0].origin})
		a.dead = a.dead[1:]
	}
	if now-a.checked >= micros(settleEvery) {
		a.checked = now
		a.settle()
	}
	for i, r := range a.s.w.replicas {
		if !r.awake() || !a.missed.reaches(r) {
			continue
		}
		p := a.parts[i]
		if p.life != r.life {
			*p = part{state: lease.NewState(), life: r.life}
		}
		for p.next < len(a.log) && now-a.log[p.next].at >= float64(i)*micros(a.s.w.sc.Network.GossipDelay) {
			p.apply(r.mesh, a.log[p.next].entry)
			p.next++
		}
	}
}

// settle proposes the checkpoint of now.
func (a *agreement) settle() {
	c := lease.Command{Kind: lease.Checkpoint}
	for _, r := range a.s.w.replicas {
		if !r.awake() || !a.missed.reaches(r) {
			continue
		}
		if low := r.mesh.router.LowestPromise(); low > 0 {
			c.Lows = append(c.Lows, lease.Low{Origin: r.mesh.self(), Ticket: low})
		}
		if c.Marks == nil { // the first leads
			r.mesh.node.Do(func(now clock.Instant, core *core.Core) {
				for _, m := range core.Marks(now, maxSettledMarks) {
					c.Marks = append(c.Marks, lease.StreamMark(m))
				}
			})
		}
	}
	a.propose(c)
}

// apply takes an entry of the log.
func (p *part) apply(r *replicated, entry []byte) {
	events, err := p.state.Apply(uint64(p.next+1), entry)
	if err != nil {
		panic("sim: an entry of the agreed log can't be read: " + err.Error()) // this file wrote it
	}
	for _, e := range events {
		switch e.Kind {
		case lease.Fenced:
			r.node.Do(func(now clock.Instant, c *core.Core) { c.Fence(now, core.Replica(e.Command.Origin)) })
		case lease.Checkpointed:
			for _, l := range e.Command.Lows {
				r.router.Settle(core.Replica(l.Origin), l.Ticket)
			}
			marks := make([]core.StreamMark, len(e.Command.Marks))
			for i, m := range e.Command.Marks {
				marks[i] = core.StreamMark(m)
			}
			r.node.Do(func(_ clock.Instant, c *core.Core) { c.CompareMarks(marks) })
		}
	}
}
