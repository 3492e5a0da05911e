package sim

import (
	"fmt"

	"github.com/rhizome-router/rhizome/sim/policy"
)

// lane is the way of frames from one replica to another: they arrive in order,
// late, and where one was lost, all after it wait until it was sent again.
type lane struct{ lastAt float64 }

// resendDelays is how much longer a lost frame takes, in one-way delays: a round
// trip and an eighth until it is missed, as QUIC has it.
const resendDelays = 2.25

// carry brings the frames that a replica has for its peers on their way.
func (w *world) carry(r *replica, now float64) {
	frames := r.mesh.frames
	r.mesh.frames = nil
	if len(frames) == 0 || w.parted(now) {
		return
	}
	delay := micros(w.sc.Network.GossipDelay)
	for _, m := range frames {
		for _, to := range w.replicas {
			if to == r || m.To != "" && m.To != to.mesh.name || w.stage.drops(r, to) {
				continue
			}
			at := now + delay*(0.5+r.rand.ExpFloat64()/2) + w.stage.later(r, to)
			for loss := w.sc.Network.GossipLoss + w.stage.loss(r, to); loss > 0 && r.rand.Float64() < loss; {
				at += resendDelays * (delay + w.stage.delay(r, to))
			}
			l := &r.lanes[to.n][m.Class]
			l.lastAt = max(l.lastAt, at)
			frame, connection, own, name := m.Frame, w.connections, w.stage.connection(r, to), r.mesh.name
			w.on(to, l.lastAt, func(now float64) {
				if w.connections != connection || w.parted(now) || w.stage.connection(r, to) != own || w.stage.drops(r, to) {
					return // it was lost with the connection
				}
				if err := to.mesh.receive(name, frame); err != nil {
					w.err = fmt.Errorf("scenario %s: replica %d to %d: %w", w.sc.Name, r.n, to.n, err)
				}
				w.carry(to, now)
			})
		}
	}
}

// everyMeshTick lets the replicas of a mesh speak and take turns at reading
// workers, each at a phase of its own.
func (w *world) everyMeshTick() {
	for _, r := range w.replicas {
		if r.mesh == nil {
			return
		}
		var tick func(now float64)
		tick = func(now float64) {
			if r.awake() {
				r.mesh.tick(w.instant(now))
				r.mesh.turns(w.history)
				w.carry(r, now)
			}
			w.schedule(now+micros(meshTick), tick)
		}
		w.schedule(micros(meshTick)*float64(r.n)/float64(len(w.replicas)), tick)
	}
}

// history is what a worker's present life said, as far back as engines can
// replay it.
func (w *world) history(worker int) (life int, batches []*policy.Batch) {
	k := w.workers[worker]
	if w.stage != nil && w.stage.cfg.NoReplay {
		return k.boot, nil
	}
	return k.boot, k.said
}

// maxReplay is how many batches an engine keeps for replay, as vLLM does.
const maxReplay = 10_000

// remember keeps a batch for replay.
func (k *worker) remember(b *policy.Batch) {
	if k.said = append(k.said, b); len(k.said) >= 2*maxReplay {
		k.said = append([]*policy.Batch(nil), k.said[len(k.said)-maxReplay:]...)
	}
}

// Times of a mesh that is cut: how long peers may be silent, and how often they
// are looked for.
const (
	silenceMicros = 4e6
	rejoinMicros  = 2e6
)

// part cuts the replicas from one another and joins them again.
func (w *world) part(from, until float64) {
	each := func(do func(r *replicated, peer string)) func(now float64) {
		return func(now float64) {
			for _, r := range w.replicas {
				for _, to := range w.replicas {
					if to != r && r.mesh != nil {
						do(r.mesh, to.mesh.name)
					}
				}
			}
			w.connections++
			for _, r := range w.replicas {
				if r.mesh != nil {
					w.carry(r, now)
				}
			}
		}
	}
	if until-from > silenceMicros {
		w.schedule(from+silenceMicros, each((*replicated).lost))
	}
	if until > from {
		w.schedule(until+float64(draw(w.seed, "rejoin", 0)%uint64(rejoinMicros)), each((*replicated).met))
	}
}
