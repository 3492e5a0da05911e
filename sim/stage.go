package sim

import (
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/sim/policy"
)

// StageConfig says what a stage plays.
type StageConfig struct {
	Scenario Scenario // its faults are the director's
	Seed     uint64
	Column   Column
	// Until is when work stops to come in; the world goes on until all of it has
	// ended, and at least to End. What has not ended by Limit never does.
	Until, End, Limit time.Duration
	// Quiet is how long it goes on at least after the last request ended.
	Quiet time.Duration
	// Refuse is the share of requests that workers turn away for want of room.
	Refuse float64
	// EventSpread is how late events are at most, and on average half that; 0: as
	// the scenario's network has it.
	EventSpread time.Duration
	// NoReplay: batches that were lost are not to be had again.
	NoReplay bool
}

// Stage is a run of the product whose course someone else directs: replicas die
// and come back, links between them break, workers fall silent. Equal
// directions from an equal seed give equal runs.
type Stage struct {
	w        *world
	cfg      StageConfig
	courses  []*Course
	pairs    []*pair // of replicas, the lower number first
	ways     [][]Way
	mute     []bool         // workers whose events are lost
	scribes  []*crdt.Stream // what each worker's present life said, all of it
	lives    []WorkerLife
	ended    time.Duration // when the last request did
	balancer *balancer     // nil: clients know of deaths
	agreed   *agreement    // nil for replicas that agree on nothing
	stays    func() bool   // whether the world goes on for the director's sake; nil: no
}

// Course is how one request went.
type Course struct {
	Request            uint64
	Arrived            time.Duration
	First, Ended       time.Duration // 0: it did not
	Replica            int
	Tries              []Try
	Ends               int
	Failed, Orphaned   bool // orphaned: its replica died
	Prompt, Cached     int  // tokens
	Answered, Expected int  // tokens
}

// Try is when a request was sent to a worker.
type Try struct {
	At     time.Duration
	Worker int
}

// WorkerLife is a time during which a worker was up; Until is 0 while it is.
type WorkerLife struct {
	Worker, Life int
	From, Until  time.Duration
}

// NewStage puts a run of the product's policy together.
func NewStage(cfg StageConfig) (*Stage, error) {
	sc := cfg.Scenario
	sc.Faults = nil
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	plan, err := sc.plan(cfg.Seed, nil)
	if err != nil {
		return nil, err
	}
	s := &Stage{cfg: cfg, mute: make([]bool, sc.Fleet.Workers)}
	p := Rhizome(Ours, cost.DefaultWeights())
	if s.w, err = newWorld(&sc, cfg.Column, cfg.Seed, plan, &p, false); err != nil {
		return nil, err
	}
	s.w.stage = s
	s.forget()
	s.courses = make([]*Course, len(plan.Jobs))
	for range sc.Replicas {
		s.ways = append(s.ways, make([]Way, sc.Replicas))
	}
	for j := range sc.Replicas {
		for i := range j {
			s.pairs = append(s.pairs, &pair{a: s.w.replicas[i], b: s.w.replicas[j]})
		}
	}
	for i := range sc.Fleet.Workers {
		s.scribes = append(s.scribes, newScribe())
		s.lives = append(s.lives, WorkerLife{Worker: i})
	}
	if len(s.pairs) > 0 {
		s.every(watchEvery, s.watch)
	}
	return s, nil
}

// forget makes the wires lose for good what they lose, if nothing is replayed.
func (s *Stage) forget() {
	for _, r := range s.w.replicas {
		for i := range r.wires {
			r.wires[i].forgets, r.wires[i].spread = s.cfg.NoReplay, s.cfg.EventSpread
		}
	}
}

func newScribe() *crdt.Stream {
	s := crdt.NewStream(crdt.StreamConfig{Counted: true, MaxBlocks: maxWorkerBlocks})
	s.Start(0)
	return s
}

// At has something done at a moment of the run.
func (s *Stage) At(at time.Duration, do func()) { s.w.schedule(micros(at), func(float64) { do() }) }

// every has something done again and again.
func (s *Stage) every(period time.Duration, do func(now float64)) {
	var tick func(now float64)
	tick = func(now float64) {
		do(now)
		s.w.schedule(now+micros(period), tick)
	}
	s.w.schedule(micros(period), tick)
}

// Play runs to the end.
func (s *Stage) Play() error { return s.w.play() }

// Now is how far the run is.
func (s *Stage) Now() time.Duration { return time.Duration(s.w.clock.Now()) }

// Courses are those of all requests that came in, in order of their numbers.
func (s *Stage) Courses() []*Course {
	var all []*Course
	for _, c := range s.courses {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// Lives are those of the workers, in order of time.
func (s *Stage) Lives() []WorkerLife { return s.lives }

// going reports whether the world has to go on though no request is open.
func (s *Stage) going() bool {
	return s != nil && (s.Now() < max(s.cfg.End, s.ended+s.cfg.Quiet) || s.stays != nil && s.stays())
}

// over reports whether it may not go on though some are.
func (s *Stage) over() bool { return s != nil && s.Now() >= s.cfg.Limit }

// enters takes note of a request that is about to arrive, and chooses another
// replica for it if its own is not there. It returns true if it does not arrive
// now.
func (s *Stage) enters(i int, now float64) (waits bool) {
	if s == nil {
		return false
	}
	f := &s.w.flights[i]
	if now >= micros(s.cfg.Until) {
		f.ended = true
		s.w.open--
		for _, next := range s.w.unlocks[i] {
			if s.w.waits[next]--; s.w.waits[next] == 0 {
				s.w.schedule(now, func(now float64) { s.w.arrive(int(next), now) })
			}
		}
		return true
	}
	ready := s.ready(f.replica.n)
	if ready == nil { // the client tries again
		s.w.schedule(now+micros(retryEvery), func(now float64) { s.w.arrive(i, now) })
		return true
	}
	f.replica = ready
	f.course = &Course{Request: uint64(i) + 1, Arrived: span(now), Replica: ready.n, Prompt: f.job.PromptTokens(), Expected: max(1, f.job.Answer.Tokens)}
	s.courses[i] = f.course
	if ready.dead { // and refuses it
		f.course.Orphaned = true
		s.w.end(i, now, true)
		return true
	}
	return false
}

// retryEvery is how often a client tries that finds no replica.
const retryEvery = 250 * time.Millisecond

// ready returns the first replica from n on that is sent requests: one that is
// warm, for all that clients know, or any that is alive if there is none.
func (s *Stage) ready(n int) *replica {
	var alive *replica
	for k := range s.w.replicas {
		r := s.w.replicas[(n+k)%len(s.w.replicas)]
		if s.sends(r) {
			return r
		}
		if alive == nil && !r.dead && !(s.balancer != nil && r.paused) {
			alive = r
		}
	}
	return alive
}

func (c *Course) sent(now float64, worker int) {
	if c != nil {
		c.Tries = append(c.Tries, Try{span(now), worker})
	}
}

func (s *Stage) ends(f *flight, now float64, failed bool) {
	c := f.course
	if c == nil {
		return
	}
	c.Ends++
	s.ended = span(now)
	c.Ended, c.Failed, c.Cached = span(now), failed, f.hbm+f.tier
	if f.first > 0 {
		c.First = span(f.first)
	}
	if !failed {
		c.Answered = f.job.Answer.Tokens
	}
}

func span(micros float64) time.Duration { return time.Duration(micros * 1e3) }

// Crash ends a replica's process, with all requests that it carries.
func (s *Stage) Crash(n int) {
	r := s.w.replicas[n]
	if r.dead {
		return
	}
	now := micros(s.Now())
	s.balancer.stops(r, now)
	r.dead, r.paused, r.held = true, false, nil
	r.life++
	for _, p := range s.w.replicas { // they hear no more of it
		if p != r {
			name := r.mesh.name
			s.w.on(p, now+silenceMicros, func(float64) { p.mesh.lost(name) })
		}
	}
	for i := range s.w.flights {
		f := &s.w.flights[i]
		if f.replica != r || f.course == nil || f.ended {
			continue
		}
		f.course.Orphaned = true
		if k := f.worker; k != nil && f.submitted && k.up && f.boot == k.boot {
			s.w.advance(k, now)
			k.engine.Cancel(f.request.ID)
			s.w.arm(k)
		}
		if !f.ended {
			s.w.end(i, now, true)
		}
	}
}

// Start begins a new life of a replica: another name, and nothing known.
func (s *Stage) Start(n int) error {
	r := s.w.replicas[n]
	if !r.dead {
		return nil
	}
	r.life++
	cfg := with(route.Rhizome)
	cfg.Seed = draw(s.w.seed, fmt.Sprint("router in life ", r.life), uint64(n))
	class := func(int) cost.Class { return cost.Generic() }
	next, err := newLife(s.w.sc, fmt.Sprintf("%s.%d", replicaName(n), r.life), true, productConfig{Config: cfg, Class: class, Clock: &s.w.clock})
	if err != nil {
		return err
	}
	r.mesh, r.router, r.dead = next, policy.Router(next), false
	for _, k := range s.w.workers {
		if !k.up {
			next.Up(s.w.clock.Now(), k.n, false)
		}
	}
	for _, p := range s.pairs {
		if p.a == r || p.b == r {
			p.connection++
			p.down, p.lost, p.closed = true, true, true
		}
	}
	return nil
}

// Pause makes a replica stand still; Resume lets it go on, with all that came
// meanwhile.
func (s *Stage) Pause(n int) {
	r := s.w.replicas[n]
	s.balancer.stops(r, micros(s.Now()))
	r.paused = !r.dead
}

// Resume ends a Pause.
func (s *Stage) Resume(n int) {
	r := s.w.replicas[n]
	held := r.held
	r.paused, r.held = false, nil
	for _, do := range held {
		do(micros(s.Now()))
	}
}

// Power turns a worker off, with all that it was doing, or on, with nothing in
// its cache.
func (s *Stage) Power(worker int, up bool) {
	k := s.w.workers[worker]
	if k.up == up {
		return
	}
	now := micros(s.Now())
	s.w.advance(k, now)
	s.w.power(k, up)
	s.w.arm(k)
	if s.scribes[worker] = newScribe(); up {
		s.lives = append(s.lives, WorkerLife{Worker: worker, Life: k.boot, From: span(now)})
		return
	}
	for i := range s.lives {
		if l := &s.lives[i]; l.Worker == worker && l.Until == 0 {
			l.Until = span(now)
		}
	}
}

// awake reports whether a replica's process runs.
func (r *replica) awake() bool { return !r.dead && !r.paused }

// on has a replica do something at a moment: never if it is dead now or has died
// by then, and later if it stands still.
func (w *world) on(r *replica, at float64, do func(now float64)) {
	life := r.life
	var run func(now float64)
	run = func(now float64) {
		switch {
		case r.life != life || r.dead:
		case r.paused:
			r.held = append(r.held, run)
		default:
			do(now)
		}
	}
	w.schedule(at, run)
}

func (r *replicated) warm() (warm bool) {
	r.node.Do(func(_ clock.Instant, c *coreOf) { warm = c.Warm() })
	return warm
}
