package fleet

import (
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// Inlet is where what one member's worker says comes in: its KV events and its
// metrics. Run's goroutines pass on what they read from the network; a
// simulator passes on what its observation layer lets through. Feed and Scraped
// may run at the same time, but each on one goroutine only.
type Inlet struct {
	Member   *Member
	follower *follower // nil without KV events
	meter    meter
	heard    func(*Member) // of Deps; may be nil
}

// inlet prepares a member for a worker that said what it is. A worker without
// KV events is known by what is sent to it.
func (f *Fleet) inlet(m *Member, id engine.Identity) *Inlet {
	m.SetEngine(id.Engine)
	cache := m.Cache()
	cache.BlockTokens, cache.SaltInRoot = id.BlockTokens, id.Engine == engine.SGLang
	cache.Known = BySent
	if id.Events != "" {
		cache.Known = ByEvents
	}
	m.SetCache(cache)
	in := &Inlet{Member: m, heard: f.deps.Heard}
	if cache.Known == BySent {
		return in
	}
	in.follower = f.follower(m, cache, id)
	return in
}

// Feed takes one event of the member's feed. It does nothing for a member that
// has none.
func (in *Inlet) Feed(e engine.FeedEvent) {
	if in.follower != nil {
		in.follower.handle(e)
	}
}

// Scraped takes one look at the member's metrics.
func (in *Inlet) Scraped(now clock.Instant, t engine.RankTelemetry) {
	in.Member.SetSignals(in.meter.observe(now, t, in.Member))
	if in.heard != nil {
		in.heard(in.Member)
	}
}

// Begin says that this replica reads the member's events from now on, for a
// driver that does without Run where replicas share what they read: when it is
// its turn, see core.Reads. process is when the worker's process started. It
// returns the number of the batch to go on with.
func (in *Inlet) Begin(process engine.Value) (next uint64) {
	fw := in.follower
	fw.f.mesh.Do(func(now clock.Instant, c *core.Core) {
		fw.turn, fw.process = true, process
		next, _ = fw.begin(now, c)
	})
	return next
}

// End says that another replica reads the member's events now.
func (in *Inlet) End() {
	in.follower.f.mesh.Do(func(clock.Instant, *core.Core) { in.follower.turn = false })
}

// Process notes when the process started that the worker is now.
func (in *Inlet) Process(start engine.Value) { in.follower.scraped(start) }

// Admit enters the i-th of the workers given to New as one that answered and
// said what it is, for a driver that does without Run. It returns an inlet for
// each of the worker's members.
func (f *Fleet) Admit(i int, id engine.Identity, models []engine.Model) []*Inlet {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.crew.workers[i]
	w.models = models
	var inlets []*Inlet
	for _, m := range w.members {
		if ruleOf(id) != ruleOf(engine.Identity{}) {
			c := m.Cache()
			f.newSlot(m, &c, ruleOf(id))
		}
		m.SetHealthy(true)
		inlets = append(inlets, f.inlet(m, id))
	}
	f.publish()
	return inlets
}
