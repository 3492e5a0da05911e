// Package pure is the chaos ground without I/O: the product's own router, fleet
// and mesh core against modelled engines, in virtual time and on one goroutine.
// Equal scenario and seed give equal histories, byte for byte, so that a
// schedule that fails can be played again and made smaller ([Shrink]).
//
// The central type is [Ground]. What it can't show: sockets and TLS, operating
// systems, and how Raft agrees: who is dead, and up to where promises are settled,
// is agreed on by those that reach most of the others, and leases are not.
// Membership is modelled by what memberlist promises of it: a peer that can't be
// reached is dead after 4 s and found again within 2 s.
package pure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/sim"
)

// Ground plays scenarios in virtual time.
type Ground struct{}

// Place implements [chaos.Ground].
func (Ground) Place() chaos.Place { return chaos.Pure }

// Ready implements [chaos.Ground]: nothing is needed.
func (Ground) Ready() error { return nil }

// sampleEvery is how often replicas are looked at.
const sampleEvery = 250 * time.Millisecond

// patience is how long after the scenario's end requests may still run.
const patience = 5 * time.Minute

// Run implements [chaos.Ground].
func (Ground) Run(ctx context.Context, s *chaos.Scenario, seed uint64) (*chaos.History, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	r, err := newRun(s, seed)
	if err != nil {
		return nil, err
	}
	r.sampling(ctx)
	if err := r.Play(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.finish()
	if s.Bounds.Regret > 0 {
		if r.h.IdealTTFT, err = ideal(s, seed); err != nil {
			return nil, err
		}
	}
	return r.h, r.err
}

// newRun puts a play of a scenario together.
func newRun(s *chaos.Scenario, seed uint64) (*run, error) {
	stage, err := newStage(s, seed, s.Replicas, sim.Learned)
	if err != nil {
		return nil, err
	}
	stage.Agree()
	stage.Balance()
	r := &run{Stage: stage, s: s, h: &chaos.History{Scenario: s.Name, Place: chaos.Pure, Seed: seed}, promised: make(map[promise]time.Duration)}
	for i := range s.Replicas {
		r.h.Replicas = append(r.h.Replicas, chaos.ReplicaLife{Replica: i})
	}
	return r, r.plan(true)
}

// newStage puts the modelled fleet together.
func newStage(s *chaos.Scenario, seed uint64, replicas int, column sim.Column) (*sim.Stage, error) {
	sc := sim.Default()
	sc.Name, sc.Replicas, sc.BlockTokens = s.Name, replicas, 64
	sc.Fleet.Workers = s.Workers
	sc.Workload = sim.Workload{Kind: sim.Agents, Sessions: s.Load.Sessions, Speed: 1}
	end := s.Duration + s.Settle
	st, err := sim.NewStage(sim.StageConfig{Scenario: sc, Seed: seed, Column: column, Until: s.Duration, End: end, Limit: end + patience, Quiet: 5 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("chaos, scenario %s on the pure ground: %w", s.Name, err)
	}
	return st, nil
}

// ideal is the mean TTFT of the same work, with the same workers' faults, under
// one router that knows the workers' constants and hears all at once.
func ideal(s *chaos.Scenario, seed uint64) (time.Duration, error) {
	stage, err := newStage(s, seed, 1, sim.Oracle)
	if err != nil {
		return 0, err
	}
	r := &run{Stage: stage, s: s, h: new(chaos.History)}
	if err := r.plan(false); err != nil {
		return 0, err
	}
	if err := stage.Play(); err != nil {
		return 0, err
	}
	r.finish()
	return chaos.MeanTTFT(r.h.Requests), r.err
}

// run is one play of a scenario.
type run struct {
	*sim.Stage
	s      *chaos.Scenario
	h      *chaos.History
	active []bool // faults, by number
	// promised is until when origins said that their promises are good, at the
	// latest.
	promised map[promise]time.Duration
	err      error
}

// promise names one of an incarnation.
type promise struct {
	origin core.Replica
	no     uint64
}

// sampling looks at the replicas again and again.
func (r *run) sampling(ctx context.Context) {
	var look func()
	look = func() {
		if ctx.Err() != nil {
			return
		}
		r.sample()
		r.At(r.Now()+sampleEvery, look)
	}
	r.At(sampleEvery, look)
}

func (r *run) sample() {
	states := make([]sim.ReplicaState, r.s.Replicas)
	for i := range states {
		states[i] = r.Replica(i)
		r.hear(&states[i])
	}
	leader, leads := r.Leader()
	for i := range states {
		st := states[i]
		x := chaos.Sample{At: r.Now(), Replica: i, Name: st.Name, Live: st.Awake, Leader: -1}
		if x.Live {
			r.fill(&x, &st)
			if leads {
				x.Leader = leader
			}
		}
		r.h.Samples = append(r.h.Samples, x)
	}
}

// hear notes until when a replica has said that its promises are good.
func (r *run) hear(st *sim.ReplicaState) {
	for _, p := range st.Told {
		id := promise{p.Origin, p.No}
		r.promised[id] = max(r.promised[id], time.Duration(p.Deadline))
	}
}

// keptMarks is how many of a stream's marks a sample has.
const keptMarks = 8

func (r *run) fill(x *chaos.Sample, st *sim.ReplicaState) {
	x.Members = []string{st.Name}
	for _, p := range st.Members {
		if p.Alive {
			x.Members = append(x.Members, p.Name)
		}
		if p.Up {
			x.Joined = append(x.Joined, p.Name)
		}
	}
	slices.Sort(x.Members)
	x.InFlight, x.Slots, x.Promises = st.Booked, st.Index.OpenSlots, st.Index.Promises
	x.Healthy, x.Corrupt, x.LostOps = st.Healthy, st.Stats.Corrupt, st.Stats.LostOps
	x.Memory = st.Index.Bytes + st.Lag.Log.BaseBytes + int64(st.Lag.Log.RingBytes)
	for _, l := range st.Lag.Behind {
		x.MissingBytes += int(l.Batches) * batchBytes
	}
	for _, t := range st.Streams {
		if t.Current {
			x.Following = append(x.Following, t.Worker)
			x.Streams = append(x.Streams, streamOf(&t))
		}
	}
	for _, p := range st.Held {
		t := chaos.Ticket{Origin: p.Origin.Name, No: p.No, Deadline: time.Duration(p.Deadline), Fenced: r.Fenced(x.Replica, p.Origin)}
		if said, known := r.promised[promise{p.Origin, p.No}]; known {
			t.Deadline = min(t.Deadline, said)
		}
		x.Tickets = append(x.Tickets, t)
	}
	slices.Sort(x.Following)
	slices.SortFunc(x.Streams, func(a, b chaos.Stream) int { return cmp.Compare(a.Worker, b.Worker) })
}

// batchBytes is what a batch of a modelled engine has on the wire, about: a few
// dozen blocks.
const batchBytes = 512

func streamOf(t *sim.StreamState) chaos.Stream {
	out := chaos.Stream{Worker: t.Worker, Boot: uint64(t.Boot), Next: t.Next, Digest: t.Digest, Truncated: t.Truncated}
	for _, s := range t.Skips {
		out.Skips = out.Skips*31 + s.From*7 + s.To + 1
	}
	for _, m := range t.Marks[max(0, len(t.Marks)-keptMarks):] {
		out.Marks = append(out.Marks, chaos.Mark{Next: m.W + 1, Skips: m.Skips, Digest: m.Digest})
	}
	return out
}

// finish writes down what the stage knows once it is over.
func (r *run) finish() {
	h := r.h
	h.End = r.Now()
	for _, l := range r.Lives() {
		h.Workers = append(h.Workers, chaos.WorkerLife{Worker: l.Worker, Boot: uint64(l.Life), From: l.From, Until: l.Until})
	}
	for i := range r.s.Workers {
		truth, held, ok := r.Truth(i)
		if !ok {
			continue
		}
		if truth.Held != held {
			r.err = fmt.Errorf("chaos, scenario %s: worker %d holds %d blocks, and its events say %d: the model of engines is wrong", r.s.Name, i, held, truth.Held)
		}
		h.Truths = append(h.Truths, chaos.Stream{Worker: i, Next: truth.Next, Digest: truth.Digest})
	}
	for _, c := range r.Courses() {
		h.Requests = append(h.Requests, r.requestOf(c))
	}
}

func (r *run) requestOf(c *sim.Course) chaos.Request {
	q := chaos.Request{
		ID: c.Request, At: c.Arrived, First: c.First, End: c.Ended, Replica: c.Replica, Worker: -1, Ends: c.Ends,
		PromptTokens: c.Prompt, CachedTokens: c.Cached, Faultless: !c.Orphaned,
	}
	for _, t := range c.Tries {
		q.Worker, q.Sent = t.Worker, t.At
		q.Tries = append(q.Tries, chaos.Try{At: t.At, Worker: t.Worker})
		for i := range r.h.Workers { // that died while the try ran
			l := &r.h.Workers[i]
			if l.Worker == t.Worker && l.Until > 0 && l.Until <= max(c.Ended, t.At) && l.Until >= c.Arrived {
				q.Faultless = false
			}
		}
	}
	switch {
	case c.Ends == 0:
		q.Outcome = chaos.Open
	case c.Orphaned:
		q.Outcome = chaos.ReplicaLost
	case c.Failed && c.First > 0:
		q.Outcome = chaos.WorkerLost
	case c.Failed:
		q.Outcome = chaos.Refused
	case c.Answered < c.Expected:
		q.Outcome = chaos.Short
	default:
		q.Outcome = chaos.Answered
	}
	return q
}
