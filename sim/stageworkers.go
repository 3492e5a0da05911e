package sim

import "github.com/rhizome-router/rhizome/sim/policy"

// What a stage does to its workers, and to what they say.

// Slow makes a worker run at 1/factor of its speed.
func (s *Stage) Slow(worker int, factor float64) error {
	k := s.w.workers[worker]
	s.w.advance(k, micros(s.Now()))
	err := k.engine.SetSlowdown(factor)
	s.w.arm(k)
	return err
}

// LoseEvents makes a share of the workers' batches get lost on their way; they
// are replayed once they are missed.
func (s *Stage) LoseEvents(share float64) {
	for _, r := range s.w.replicas {
		for i := range r.wires {
			r.wires[i].loss = s.w.sc.Network.EventLoss + share
		}
	}
}

// Mute makes all that a worker says get lost, for good.
func (s *Stage) Mute(worker int, on bool) { s.mute[worker] = on }

// mutes reports whether a batch is lost to everybody, and keeps account of what
// workers say.
func (s *Stage) mutes(k *worker, b *policy.Batch) bool {
	if s == nil {
		return false
	}
	s.scribes[k.n].Apply(b.Seq, b.Ops, noChange)
	return s.mute[k.n]
}

// refuses reports whether a worker turns a request away that was sent to it.
func (s *Stage) refuses(f *flight) bool {
	const parts = 1 << 20
	return s != nil && s.cfg.Refuse > 0 && float64(draw(s.w.seed, "refuse", f.request.ID<<8|uint64(f.attempts))%parts) < s.cfg.Refuse*parts
}
