package sim

import (
	"fmt"
	"slices"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// detectMicros bounds how long a router takes to notice that a worker is gone
// or back, unless a request tells it first: the period of its probes.
const detectMicros = 2e6

// planFaults schedules what goes wrong.
func (w *world) planFaults() {
	for i := range w.sc.Faults {
		f := &w.sc.Faults[i]
		from, until := micros(f.From), micros(f.Until)
		switch f.Kind {
		case Slow:
			w.during(f, from, until, func(k *worker, on bool) error { return k.engine.SetSlowdown(pick(on, f.Factor, 1)) })
		case Rho:
			for at, half := from, micros(f.Period)/2; at < pick(until > 0, until, w.horizon()); at += 2 * half {
				w.during(f, at, at+half, func(k *worker, on bool) error {
					return k.engine.SetLink(kv.CPU, w.nature.bytesPerSecond[k.n]*pick(on, 1-f.Factor, 1))
				})
			}
		case Down:
			w.during(f, from, until, func(k *worker, on bool) error { w.power(k, !on); return nil })
		case Partition:
			w.part(from, until)
		case IndexDown:
			w.schedule(from, func(float64) { w.indexDown = true })
			if until > from {
				w.schedule(until, func(float64) { w.indexDown = false })
			}
		}
	}
}

// horizon is when faults that never end may stop coming and going: later than
// any plan lasts.
func (w *world) horizon() float64 { return 4 * 3600e6 }

// during calls set for the fault's workers when it begins and when it ends.
func (w *world) during(f *Fault, from, until float64, set func(k *worker, on bool) error) {
	apply := func(on bool) func(float64) {
		return func(now float64) {
			for _, k := range w.workers {
				if f.Workers != nil && !slices.Contains(f.Workers, k.n) {
					continue
				}
				w.advance(k, now)
				if err := set(k, on); err != nil {
					w.err = fmt.Errorf("scenario %s, fault %s: %w", w.sc.Name, f.Kind, err)
				}
				w.arm(k)
			}
		}
	}
	w.schedule(from, apply(true))
	if until > from {
		w.schedule(until, apply(false))
	}
}

func pick(cond bool, a, b float64) float64 {
	if cond {
		return a
	}
	return b
}

// power turns a worker off, with all that it was doing, or on, with nothing in
// its cache.
func (w *world) power(k *worker, up bool) {
	if k.up == up {
		return
	}
	now := float64(w.clock.Now()) / 1e3
	k.boot++
	if !up {
		k.busyBefore = 0
		w.record.count(k.engine)
		k.engine.Reset(func(e model.Event) { w.happened(k, &e) })
		k.journal.restart()
		k.said = nil
	}
	k.up = up
	boot := k.boot
	for _, r := range w.replicas {
		at := now + float64(draw(w.seed, "probe", uint64(k.n)<<32|uint64(r.n)<<16|uint64(boot))%uint64(detectMicros))
		w.on(r, at, func(now float64) {
			if k.boot == boot {
				r.router.Up(w.instant(now), k.n, up)
			}
		})
	}
}
