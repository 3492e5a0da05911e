package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/sim/policy"
	"github.com/rhizome-router/rhizome/workload"
)

// world is one run: a plan played through the replicas of one policy against
// one seed's workers, in virtual time. Only the workers know what they are
// like; the replicas see what the observation layer brings them.
type world struct {
	sc     *Scenario
	seed   uint64
	plan   *workload.Plan
	nature *nature

	clock    clock.Virtual
	wall     clock.Clock // how long decisions take, for show
	agenda   agenda
	workers  []*worker
	replicas []*replica

	flights   []flight // by job
	waits     []int32  // by job: how many of its Waits are still open
	unlocks   [][]int32
	record    record
	indexDown bool
	// connections counts the times at which replicas were cut off or joined.
	connections int
	terms       *termSums // where the product's costs are summed; nil: nowhere
	open        int       // jobs not ended
	stage       *Stage    // who directs the run; nil: nobody
	err         error
}

// worker is one modelled engine and what hangs on it.
type worker struct {
	n          int
	engine     *model.Worker
	journal    *journal
	up         bool
	version    uint64 // of the next wake-up: older ones are void
	boot       int
	busyBefore float64         // at the end of the last window
	said       []*policy.Batch // in this life, for replicas that begin to read it
}

// replica is one router under test.
type replica struct {
	n      int
	router policy.Router
	peer   policy.Peer // nil if it tells nothing
	mesh   *replicated // nil if it has none
	lanes  [][2]lane   // of the mesh, by replica and class
	wires  []wire      // by worker
	rand   *rand.Rand  // of its gossip
	heard  []float64   // by replica: when the last of its messages arrives

	life         int // counts its restarts
	dead, paused bool
	held         []func(now float64) // what is to be done once it stands still no more
}

// flight is a job under way.
type flight struct {
	job                        *workload.Job
	request                    policy.Request
	contents                   []kv.Content
	engineKeys                 []kv.EngineHash
	replica                    *replica
	worker                     *worker
	arrived                    float64
	attempts                   int
	boot                       int
	submitted, answered, ended bool    // by the engine in this attempt; by the engine; for the client
	first                      float64 // when the first token came, 0 before
	hbm, tier                  int
	choice                     policy.Choice
	course                     *Course // what is noted of it; nil where nobody asks
}

// maxAttempts is how many workers one request is tried on.
const maxAttempts = 3

func (w *world) schedule(at float64, do func(now float64)) { w.agenda.put(at, do) }

// now is the present as the routers' code counts it.
func (w *world) instant(at float64) clock.Instant { return clock.Instant(at * 1e3) }

// play runs the plan to its end.
func (w *world) play() error {
	for i := range w.plan.Jobs {
		j := &w.plan.Jobs[i]
		if len(j.Waits) == 0 {
			w.schedule(micros(j.At), func(now float64) { w.arrive(i, now) })
		}
	}
	w.open = len(w.plan.Jobs)
	for (w.open > 0 || w.stage.going()) && w.err == nil && !w.stage.over() {
		e, ok := w.agenda.take()
		if !ok {
			return fmt.Errorf("scenario %s: nothing is left to happen, but %d requests have not ended", w.sc.Name, w.open)
		}
		w.clock.Advance(w.instant(e.at).Sub(w.clock.Now()))
		e.do(e.at)
	}
	for _, k := range w.workers {
		w.record.count(k.engine)
	}
	return w.err
}

// arrive is a request's coming to one of the replicas.
func (w *world) arrive(i int, now float64) {
	f := &w.flights[i]
	j := &w.plan.Jobs[i]
	f.job, f.arrived = j, now
	f.replica = w.replicas[int(draw(w.seed, "balancer", uint64(i))%uint64(len(w.replicas)))]
	if w.stage.enters(i, now) {
		return
	}
	keys, contents := workload.Blocks(w.root(), j.Prompt, j.Answer, w.sc.BlockTokens)
	prompt := j.PromptTokens()
	f.contents = contents
	f.engineKeys = make([]kv.EngineHash, len(keys))
	for k, key := range keys {
		f.engineKeys[k] = kv.EngineHash(key)
	}
	f.request = policy.Request{
		ID: uint64(i) + 1, Tenant: j.Tenant, Tool: j.Tool, Keys: keys[:min(len(keys), prompt/w.sc.BlockTokens)],
		BlockTokens: w.sc.BlockTokens, PromptTokens: prompt, MaxTokens: j.MaxTokens,
	}
	if !j.Hidden {
		f.request.Session = fmt.Sprintf("s%d", j.Session)
	}
	if w.sc.Workload.Announce {
		f.request.Workflow = fmt.Sprintf("w%d", j.Session)
	}
	w.record.arrived(i, j, prompt, now)
	if f.replica.paused {
		w.on(f.replica, now, func(now float64) { w.dispatch(i, now) })
		return
	}
	w.dispatch(i, now)
}

// dispatch asks the replica for a worker.
func (w *world) dispatch(i int, now float64) {
	f := &w.flights[i]
	if !w.anyUp() {
		w.end(i, now, true)
		return
	}
	f.attempts++
	w.ask(i, now)
}

// chosen sends a request to the worker that its replica chose.
func (w *world) chosen(i int, c policy.Choice, now float64) {
	f := &w.flights[i]
	f.choice = c
	w.tell(f.replica, now)
	to := c.Worker
	if to < 0 || to >= len(w.workers) {
		w.err = fmt.Errorf("scenario %s: request %d was sent to worker %d of %d", w.sc.Name, i, to, len(w.workers))
		return
	}
	f.worker, f.submitted = w.workers[to], false
	f.course.sent(now, to)
	at := now + micros(f.choice.After) + w.nature.requestMicros(f.request.PromptTokens)
	w.schedule(at, func(now float64) { w.submit(i, now) })
}

// submit is the request's coming to the engine.
func (w *world) submit(i int, now float64) {
	f := &w.flights[i]
	if f.ended {
		return // its replica died
	}
	k := f.worker
	if !k.up {
		w.unreachable(i, now)
		return
	}
	if w.stage.refuses(f) {
		w.lost(i, now, policy.Usage{Failed: true, Refused: true})
		return
	}
	w.advance(k, now)
	f.boot = k.boot
	err := k.engine.Submit(now, model.Request{
		ID: f.request.ID, PromptTokens: f.request.PromptTokens, OutputTokens: max(1, f.job.Answer.Tokens), MaxTokens: f.job.MaxTokens, Keys: f.engineKeys,
	})
	if err != nil {
		// The worker refuses what it can never hold; so would any other.
		f.replica.router.Done(w.instant(now), f.request.ID, policy.Usage{Failed: true})
		w.tell(f.replica, now)
		w.end(i, now, true)
		return
	}
	f.submitted = true
	w.arm(k)
}

// unreachable is the end of an attempt on a worker that is no more.
func (w *world) unreachable(i int, now float64) {
	f := &w.flights[i]
	f.replica.router.Up(w.instant(now), f.worker.n, false)
	w.lost(i, now, policy.Usage{Failed: true})
}

// lost is the end of an attempt that came to nothing. What has not been answered
// yet goes to another worker, as a gateway does it.
func (w *world) lost(i int, now float64, how policy.Usage) {
	f := &w.flights[i]
	r := f.replica
	r.router.Done(w.instant(now), f.request.ID, how)
	w.tell(r, now)
	if f.first > 0 || f.attempts >= maxAttempts {
		w.end(i, now, true)
		return
	}
	w.dispatch(i, now)
}

// end closes a job and sends those that waited for it.
func (w *world) end(i int, now float64, failed bool) {
	f := &w.flights[i]
	if f.ended {
		w.err = fmt.Errorf("scenario %s: request %d ended twice", w.sc.Name, i)
		return
	}
	f.ended = true
	w.record.ended(i, f, now, failed)
	w.stage.ends(f, now, failed)
	if f.request, f.engineKeys = (policy.Request{}), nil; f.course == nil || !f.course.Orphaned {
		f.contents = nil // else the engine has not heard of it yet
	}
	w.open--
	for _, next := range w.unlocks[i] {
		if w.waits[next]--; w.waits[next] == 0 {
			j := &w.plan.Jobs[next]
			w.schedule(max(micros(j.At), now+micros(j.After)), func(now float64) { w.arrive(int(next), now) })
		}
	}
}

// advance lets one engine's time pass.
func (w *world) advance(k *worker, to float64) {
	k.engine.Advance(to, func(e model.Event) { w.happened(k, &e) })
	k.journal.flush()
}

// happened takes one event of an engine.
func (w *world) happened(k *worker, e *model.Event) {
	switch e.Kind {
	case model.Stored, model.Removed:
		if e.Group != 0 {
			return // routers that read windowed groups are a matter of their own
		}
		var contents []kv.Content
		if e.ID != 0 {
			contents = w.flights[e.ID-1].contents
		}
		k.journal.add(e, contents)
	case model.Cleared:
		k.journal.add(e, nil)
	case model.Lost:
		i, attempt := int(e.ID-1), w.flights[e.ID-1].attempts
		w.on(w.flights[i].replica, e.At+w.nature.responseMicros, func(now float64) {
			if f := &w.flights[i]; f.attempts == attempt && !f.ended {
				w.unreachable(i, now)
			}
		})
	case model.FirstToken:
		i := int(e.ID - 1)
		f := &w.flights[i]
		f.hbm, f.tier = e.HBMTokens, e.TierTokens
		at, boot := e.At+w.nature.responseMicros, k.boot
		w.on(f.replica, at, func(now float64) {
			if f.boot != boot || f.worker != k || f.ended {
				return
			}
			f.first = now
			f.replica.router.FirstToken(w.instant(now), f.request.ID)
			w.tell(f.replica, now)
		})
	case model.Finished:
		i := int(e.ID - 1)
		f := &w.flights[i]
		f.answered = true
		at, tokens := e.At+w.nature.responseMicros, e.Tokens
		w.on(f.replica, at, func(now float64) {
			if f.ended {
				return // its replica died
			}
			f.replica.router.Done(w.instant(now), f.request.ID, policy.Usage{
				PromptTokens: f.request.PromptTokens, CachedTokens: f.hbm + f.tier, CompletionTokens: tokens})
			w.tell(f.replica, now)
			w.end(i, now, false)
		})
	}
}

// arm schedules a worker's next moment.
func (w *world) arm(k *worker) {
	k.version++
	at, ok := k.engine.Next()
	if !ok {
		return
	}
	version := k.version
	w.schedule(at, func(now float64) {
		if k.version != version || !k.up {
			return
		}
		w.advance(k, now)
		w.arm(k)
	})
}

func (w *world) anyUp() bool {
	for _, k := range w.workers {
		if k.up {
			return true
		}
	}
	return false
}

// publish sends one worker's batch to every replica.
func (w *world) publish(k *worker, at float64, b *policy.Batch) {
	boot := k.boot
	b.Life = boot
	if w.stage.mutes(k, b) {
		return
	}
	if w.replicas[0].mesh != nil {
		k.remember(b)
	}
	for _, r := range w.replicas {
		if r.mesh != nil && !r.mesh.reads[k.n] {
			continue
		}
		arrives, lost := r.wires[k.n].arrival(max(at, float64(w.clock.Now())/1e3))
		if lost {
			continue
		}
		w.on(r, arrives, func(now float64) {
			if k.boot == boot {
				r.router.Events(w.instant(now), k.n, b)
				w.tell(r, now)
			}
		})
	}
}

func (w *world) root() kv.Key { return kv.Root(modelName, "", "") }

// modelName is the model that all workers serve.
const modelName = "m"

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
