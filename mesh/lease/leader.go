package lease

import (
	"bytes"
	"time"

	"github.com/hashicorp/raft"

	"github.com/rhizome-router/rhizome/clock"
)

// legacy is what a cluster begins with: what its first server knew of the last
// one, nil for nothing, and the command that begins it.
type legacy struct {
	copy  []byte
	begin Command // Gen is 0 once it was begun
}

// follow does what a change of leadership brings, until the voter stops.
func (g *Group) follow(v *voter, from legacy) {
	for {
		select {
		case <-v.done:
			return
		case leads := <-v.leads:
			v.ready.Store(false)
			if leads {
				g.ascend(v, &from)
			}
			g.poke()
		}
	}
}

// ascend makes a leader ready: its state has what was agreed before it, and of a
// cluster that just began what its first server knew.
func (g *Group) ascend(v *voter, from *legacy) {
	log := g.deps.Log
	// Raft refuses to restore before it has applied that this server is in the
	// cluster, which it may not have when it says that it leads.
	if err := v.await(v.raft.Barrier(changeTimeout).Error); err != nil {
		log.Info("led for too short to be of use", "err", err)
		return
	}
	if len(from.copy) > 0 {
		s, err := Restore(from.copy)
		if err == nil {
			meta := raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: s.Index(), Size: int64(len(from.copy))}
			copied := bytes.NewReader(from.copy)
			err = v.await(func() error { return v.raft.Restore(&meta, copied, changeTimeout) })
		}
		if err != nil {
			log.Error("a new generation of leases could not take over the copy", "err", err)
			return
		}
		from.copy = nil
	}
	if from.begin.Gen != 0 {
		if err := g.enter(v, from.begin); err != nil {
			log.Info("led for too short to begin a generation", "err", err)
			return
		}
		from.begin.Gen = 0
	}
	v.rearm.Store(true)
	v.ready.Store(true)
	log.Info("lead the agreement on leases", "server", v.id, "term", v.raft.CurrentTerm())
}

// enter puts the leader's own commands into the log and waits.
func (g *Group) enter(v *voter, commands ...Command) error {
	p := Proposal{From: g.origin(), Commands: commands}
	return v.await(v.raft.Apply(p.Append(nil), applyTimeout).Error)
}

// lead does what only a leader does: it ends leases that were idle, fences the
// dead, and settles promises.
func (g *Group) lead(now clock.Instant) {
	v := g.voter.Load()
	if v == nil || !g.own.Leads {
		clear(g.fenced)
		return
	}
	if v.rearm.Swap(false) {
		v.machine.mu.RLock()
		g.expire.Rearm(now, v.machine.state.Leases())
		v.machine.mu.RUnlock()
		g.checked = now
	}
	commands := g.expire.Due(now, maxRevocation)
	for _, p := range g.deps.Node.Peers() {
		h := g.peers[p.Name]
		if p.Alive || p.Left || h == nil || now.Sub(p.Since) < fenceAfter {
			continue
		}
		dead := Origin{p.Name, h.Inc}
		if at, asked := g.fenced[dead]; !asked || now.Sub(at) >= askRevocation && !v.machine.fenced(dead) {
			g.fenced[dead] = now
			commands = append(commands, Command{Kind: Fence, Origin: dead})
		}
	}
	if late := g.lateGeneration(); late != 0 {
		commands = append(commands, Command{Kind: Generation, Gen: late, Cluster: g.own.Cluster})
	}
	if now.Sub(g.checked) >= settleEvery {
		g.checked = now
		commands = append(commands, g.settle(now)...)
	}
	for from := 0; from < len(commands); from += maxRevocation {
		p := Proposal{From: g.origin(), Commands: commands[from:min(len(commands), from+maxRevocation)]}
		v.raft.Apply(p.Append(nil), applyTimeout) // what is lost is proposed again, or by the next leader
	}
}

// lateGeneration returns a generation past those of clusters that are left for
// this one, if it is not already.
func (g *Group) lateGeneration() uint64 {
	gen := g.own.Gen
	for _, p := range g.peers { // order-free: a maximum
		if p.YieldTo == g.own.Cluster {
			gen = max(gen, p.Gen+1)
		}
	}
	if gen == g.own.Gen {
		return 0
	}
	return gen
}

// settle returns the checkpoint of now.
func (g *Group) settle(now clock.Instant) []Command {
	c := Command{Kind: Checkpoint, Lows: []Low{{g.origin(), g.own.Low}}}
	for name, p := range g.peers { // order-free: each by itself
		if now.Sub(p.at) < freshAdvert && p.Low > 0 && len(c.Lows) < maxLows {
			c.Lows = append(c.Lows, Low{Origin{name, p.Inc}, p.Low})
		}
	}
	if g.deps.Marks != nil {
		c.Marks = g.deps.Marks()
		c.Marks = c.Marks[:min(len(c.Marks), maxMarks)]
	}
	if c.Lows[0].Ticket == 0 {
		c.Lows = c.Lows[1:]
	}
	if len(c.Lows) == 0 && len(c.Marks) == 0 {
		return nil
	}
	return []Command{c}
}

// buckets bounds how many new leases each API key gets in a second.
type buckets struct {
	rate int
	of   map[uint64]*bucket
}

type bucket struct {
	left float64
	at   clock.Instant
}

const maxBuckets = 1 << 14

func newBuckets(rate int) buckets { return buckets{rate, make(map[uint64]*bucket)} }

// take reports whether an owner may have one more.
func (b *buckets) take(now clock.Instant, owner uint64) bool {
	x := b.of[owner]
	if x == nil {
		if len(b.of) >= maxBuckets {
			for o, x := range b.of { // order-free: all that are full again
				if now.Sub(x.at) >= time.Second {
					delete(b.of, o)
				}
			}
		}
		if len(b.of) >= maxBuckets {
			return false
		}
		x = &bucket{float64(b.rate), now}
		b.of[owner] = x
	}
	x.left = min(float64(b.rate), x.left+now.Sub(x.at).Seconds()*float64(b.rate))
	x.at = now
	if x.left < 1 {
		return false
	}
	x.left--
	return true
}
