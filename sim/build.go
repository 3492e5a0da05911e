package sim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/sim/policy"
	"github.com/rhizome-router/rhizome/workload"
)

// newWorld puts a run together: the seed's workers, and the replicas that make
// returns for them.
func newWorld(sc *Scenario, column Column, seed uint64, plan *workload.Plan, p *Policy, draws bool) (*world, error) {
	n, err := newNature(sc, seed)
	if err != nil {
		return nil, err
	}
	w := &world{wall: clock.Real(), sc: sc, seed: seed, plan: plan, nature: n, flights: make([]flight, len(plan.Jobs)), waits: make([]int32, len(plan.Jobs)), unlocks: make([][]int32, len(plan.Jobs))}
	w.record.samples = make([]sample, len(plan.Jobs))
	for i := range plan.Jobs {
		for _, on := range plan.Jobs[i].Waits {
			if on >= i {
				return nil, fmt.Errorf("plan %s: job %d waits for %d, which does not stand before it", plan.Name, i, on)
			}
			w.waits[i]++
			w.unlocks[on] = append(w.unlocks[on], int32(i))
		}
	}
	for i := range sc.Fleet.Workers {
		k := &worker{n: i, up: true}
		if k.engine, err = model.New(w.engineConfig(k)); err != nil {
			return nil, fmt.Errorf("scenario %s: %w", sc.Name, err)
		}
		k.journal = newJournal(sc.BlockTokens, w.root(), p.Peer, func(at float64, b *policy.Batch) { w.publish(k, at, b) })
		w.workers = append(w.workers, k)
	}
	if draws {
		w.terms = &w.record.terms
	}
	routers, err := p.make(w, column)
	if err != nil {
		return nil, err
	}
	for i, r := range routers {
		w.addReplica(i, r)
	}
	w.everyScrape(micros(cmp.Or(p.Scrape, sc.Network.Scrape)))
	w.everyWindow(windowMicros)
	w.everyGossip()
	w.everyMeshTick()
	w.planFaults()
	return w, nil
}

// addReplica joins one router to the world.
func (w *world) addReplica(i int, r policy.Router) {
	rep := &replica{n: i, router: r, rand: clock.Rand(w.seed, fmt.Sprintf("gossip of replica %d", i)), heard: make([]float64, w.sc.Replicas)}
	rep.peer, _ = r.(policy.Peer)
	if rep.mesh, _ = r.(*replicated); rep.mesh != nil {
		rep.lanes = make([][2]lane, w.sc.Replicas)
	}
	for n := range w.workers {
		wire := wire{rand: clock.Rand(w.seed, fmt.Sprintf("events of worker %d to replica %d", n, i)), delay: w.sc.Network.EventDelay, loss: w.sc.Network.EventLoss}
		rep.wires = append(rep.wires, wire)
	}
	w.replicas = append(w.replicas, rep)
}

// engineConfig is what a worker is really like.
func (w *world) engineConfig(k *worker) model.Config {
	sc, n := w.sc, w.nature
	c := model.Config{
		Preset: n.preset, Timing: n.timing(k.n), BlockTokens: sc.BlockTokens, PoolTokens: sc.Fleet.PoolTokens,
		BudgetTokens: n.budgetTokens,
		Noise:        noise(w.seed, k.n), SetupNoise: setup(w.seed, k.n), Tiers: []model.TierConfig{},
	}
	if sc.Fleet.Profile == SGLangLoads {
		c.Schedule, c.Admit, c.RadixTree = model.PrefillFirst, model.SGLangRatio, true
	}
	if sc.Fleet.CPUTimesHBM > 0 {
		pool := cmp.Or(sc.Fleet.PoolTokens, n.preset.PoolTokens)
		c.Tiers = append(c.Tiers, model.TierConfig{
			Tier: kv.CPU, CapacityTokens: int(sc.Fleet.CPUTimesHBM * float64(pool)), BytesPerSecond: n.bytesPerSecond[k.n], SetupMicros: n.setupMicros})
		c.WriteThrough = sc.Fleet.Profile == VLLMOffload
	}
	return c
}

// trueClass is what a router that knows everything assumes of a worker.
func (w *world) trueClass(i int) cost.Class {
	c := cost.Generic()
	l := w.nature.linear[i]
	c.Name = fmt.Sprintf("true-%d", i)
	c.StepMicros, c.SeqMicros, c.KVTokenMicros, c.TokenMicros, c.PairMicros = l.A, l.B, l.C, l.E, l.Q
	c.KVBytes = float64(w.nature.preset.KVBytesPerToken)
	c.Links[kv.CPU] = cost.Link{SetupMicros: w.nature.setupMicros, BytesPerMicro: w.nature.bytesPerSecond[i] / 1e6}
	return c
}

// wrongClass is the truth with each constant doubled or halved and a third of
// the bandwidth, the same way for all workers of a seed.
func (w *world) wrongClass(i int) cost.Class {
	c := w.trueClass(i)
	c.Name = fmt.Sprintf("wrong-%d", i)
	for n, p := range []*float64{&c.StepMicros, &c.SeqMicros, &c.KVTokenMicros, &c.TokenMicros, &c.PairMicros} {
		if draw(w.seed, "misspecified", uint64(n))%2 == 0 {
			*p *= 2
		} else {
			*p /= 2
		}
	}
	c.Links[kv.CPU].BytesPerMicro /= 3
	return c
}

// everyScrape looks at each worker's metrics for each replica, again and again.
func (w *world) everyScrape(period float64) {
	for _, r := range w.replicas {
		for _, k := range w.workers {
			var scrape func(now float64)
			scrape = func(now float64) {
				if k.up {
					w.advance(k, now)
					t := look(w.sc.Fleet.Profile, k.engine)
					w.on(r, now+w.nature.responseMicros, func(now float64) {
						r.router.Scraped(w.instant(now), k.n, &t)
						w.tell(r, now)
					})
					w.arm(k)
				}
				w.schedule(now+period, scrape)
			}
			phase := float64(draw(w.seed, "scrape", uint64(r.n)<<32|uint64(k.n)) % uint64(period))
			w.schedule(phase, scrape)
		}
	}
}

// everyWindow notes how long each worker was busy in each window.
func (w *world) everyWindow(length float64) {
	var tick func(now float64)
	tick = func(now float64) {
		window := make([]float64, len(w.workers))
		for i, k := range w.workers {
			if k.up {
				w.advance(k, now)
				w.arm(k)
			}
			busy := k.engine.BusyMicros()
			window[i] = min(length, max(0, busy-k.busyBefore))
			k.busyBefore = busy
		}
		w.record.busy = append(w.record.busy, window)
		w.schedule(now+length, tick)
	}
	w.schedule(length, tick)
}

// tell passes on what a replica has to say to the others.
func (w *world) tell(r *replica, now float64) {
	if r.mesh != nil {
		w.carry(r, now)
	}
	if r.peer == nil || len(w.replicas) == 1 {
		return
	}
	said := r.peer.Tell(w.instant(now))
	if said == nil {
		return
	}
	for _, to := range w.replicas {
		if to == r || r.rand.Float64() < w.sc.Network.GossipLoss || w.parted(now) {
			continue
		}
		at := now + micros(w.sc.Network.GossipDelay)*(0.5+r.rand.ExpFloat64()/2)
		at = max(at, r.heard[to.n])
		r.heard[to.n] = at
		w.schedule(at, func(now float64) { to.peer.Hear(w.instant(now), r.n, said) })
	}
}

// parted reports whether replicas can't hear each other now.
func (w *world) parted(now float64) bool {
	for _, f := range w.sc.Faults {
		if f.Kind == Partition && now >= micros(f.From) && now < micros(f.Until) {
			return true
		}
	}
	return false
}

// gossipTick is how often a replica that has nothing else to do may speak.
const gossipTick = 20 * time.Millisecond

// everyGossip lets the replicas speak.
func (w *world) everyGossip() {
	if len(w.replicas) == 1 {
		return
	}
	var tick func(now float64)
	tick = func(now float64) {
		for _, r := range w.replicas {
			w.tell(r, now)
		}
		w.schedule(now+micros(gossipTick), tick)
	}
	w.schedule(0, tick)
}
