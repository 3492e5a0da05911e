package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/mesh/core"
)

const (
	// maxBatch is how many commands of different callers one proposal takes.
	maxBatch = 512
	// proposalLife is how long a proposal waits for a leader.
	proposalLife = time.Second
	retryEvery   = 20 * time.Millisecond
)

// ErrUnknown says that it is not known whether a proposal was agreed on: it may
// be in the log, or come into it.
var ErrUnknown = errors.New("not known whether it was agreed on")

// Propose asks for commands to be agreed on, without waiting and at most once:
// what finds no leader within a second is dropped, and so is what the queue has
// no room for, which it reports.
func (g *Group) Propose(commands ...Command) bool {
	if g.deps.Node == nil {
		return false
	}
	select {
	case g.proposals <- commands:
		return true
	default:
		g.counts.dropped.Add(uint64(len(commands)))
		return false
	}
}

// propose gathers proposals and sends them to the leader.
func (g *Group) propose(ctx context.Context) {
	for {
		var batch []Command
		select {
		case <-ctx.Done():
			return
		case batch = <-g.proposals:
		}
	gather:
		for len(batch) < maxBatch {
			select {
			case more := <-g.proposals:
				batch = append(batch, more...)
			default:
				break gather
			}
		}
		g.send(ctx, batch, nil)
	}
}

// send numbers a proposal and hands it to the leader; result, if not nil, is
// told what it came to.
func (g *Group) send(ctx context.Context, commands []Command, result chan<- outcome) error {
	began := g.deps.Clock.Now()
	for {
		if done, err := g.try(commands, result); done {
			return err
		}
		if g.deps.Clock.Now().Sub(began) >= proposalLife {
			g.counts.dropped.Add(uint64(len(commands)))
			return errNoLeader
		}
		if err := g.deps.Clock.Sleep(ctx, retryEvery); err != nil {
			return err
		}
	}
}

var errNoLeader = errors.New("no leader to propose to")

// try hands a proposal over if it is known to whom. The number is drawn and sent
// under one lock, so that the leader sees numbers grow.
func (g *Group) try(commands []Command, result chan<- outcome) (bool, error) {
	g.waiting.mu.Lock()
	defer g.waiting.mu.Unlock()
	to := g.leader.Load()
	if to == nil || g.deps.Clock.Now().Sub(to.at) >= freshAdvert {
		return false, nil
	}
	if v := g.voter.Load(); to.name == g.deps.Self && (v == nil || !v.ready.Load()) {
		return false, nil
	}
	from := g.origin()
	g.no++
	p := Proposal{From: from, No: g.no, Commands: commands}
	b := p.Append(nil)
	if len(b) > maxProposal-64 {
		return true, fmt.Errorf("%d commands take %d bytes, more than a proposal may", len(commands), len(b))
	}
	if result != nil {
		g.waiting.add(from, p.No, result)
	}
	if to.name == g.deps.Self {
		g.admit(b)
		return true, nil
	}
	if !g.deps.Node.Tell(to.name, core.Agreement, proposeWords(b)) {
		g.waiting.remove(from, p.No)
		return false, nil
	}
	return true, nil
}

// admit queues a proposal for the log, at the leader.
func (g *Group) admit(b []byte) {
	select {
	case g.intake <- b:
	default:
		g.counts.dropped.Add(1)
	}
}

// commit puts proposals into the log while this replica leads.
func (g *Group) commit(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-g.intake:
			v := g.voter.Load()
			if v == nil || !v.ready.Load() {
				g.counts.dropped.Add(1)
				continue
			}
			if b = g.allowed(b); b != nil {
				v.raft.Apply(b, applyTimeout)
			}
		}
	}
}

// allowed takes out of a proposal what its API keys may not have now; nil if
// that is all, or it is no proposal.
func (g *Group) allowed(b []byte) []byte {
	p, err := ReadProposal(b)
	if err != nil {
		g.counts.dropped.Add(1)
		return nil
	}
	now, kept := g.deps.Clock.Now(), p.Commands[:0]
	for _, c := range p.Commands {
		if c.Kind == Acquire && c.Expect == (Token{}) && c.Owner != 0 && !g.owners.take(now, c.Owner) {
			g.counts.limited.Add(1)
			continue
		}
		kept = append(kept, c)
	}
	if len(kept) == len(p.Commands) {
		return b
	}
	p.Commands = kept
	return p.Append(nil)
}

// Do proposes commands and waits until they are in the log, and known here. The
// events are in the commands' order. On [ErrUnknown] they may have been agreed on
// or not; on any other error they were not.
func (g *Group) Do(ctx context.Context, commands ...Command) ([]Event, error) {
	o, err := g.do(ctx, commands)
	return o.events, err
}

// outcome is what a proposal came to, and where.
type outcome struct {
	events []Event
	at     place
}

// place is how far in which cluster's log something is.
type place struct {
	cluster Cluster
	index   uint64
}

func (g *Group) do(ctx context.Context, commands []Command) (o outcome, err error) {
	if g.deps.Node == nil {
		return o, errNoLeader
	}
	result := make(chan outcome, 1)
	if err := g.send(ctx, commands, result); err != nil {
		return o, err
	}
	timeout := time.NewTimer(2 * proposalLife)
	defer timeout.Stop()
	select {
	case o = <-result:
		if len(o.events) != len(commands) { // ignored, or some were over a limit
			return outcome{}, ErrUnknown
		}
		return o, nil
	case <-ctx.Done():
	case <-timeout.C:
	}
	return o, ErrUnknown
}

// Verified reads a workflow's lease as the leader has it, which is linearizable:
// the leader makes sure that it still leads. The error says that there is no
// leader to ask.
func (g *Group) Verified(ctx context.Context, k Key) (Lease, bool, error) {
	a, err := g.verify(ctx, k)
	return a.lease, a.found, err
}

func (g *Group) verify(ctx context.Context, k Key) (a answer, err error) {
	to := g.leader.Load()
	if to == nil || g.deps.Clock.Now().Sub(to.at) >= freshAdvert {
		return a, errNoLeader
	}
	if to.name == g.deps.Self {
		a = g.read(0, k)
		return a, a.err()
	}
	result := make(chan answer, 1)
	no := g.waiting.ask(result)
	defer g.waiting.forget(no)
	if !g.deps.Node.Tell(to.name, core.Agreement, readWords(no, k)) {
		return a, errNoLeader
	}
	timeout := time.NewTimer(2 * proposalLife)
	defer timeout.Stop()
	select {
	case a = <-result:
		return a, a.err()
	case <-ctx.Done():
		return a, ctx.Err()
	case <-timeout.C:
		return a, errNoLeader
	}
}

func (a *answer) err() error {
	if !a.known {
		return errNoLeader
	}
	return nil
}

// read answers for the leader: a barrier in the log proves that it leads and
// that its state has all that was agreed when it was asked.
func (g *Group) read(no uint64, k Key) answer {
	a := answer{no: no}
	v := g.voter.Load()
	if v == nil || !v.ready.Load() || v.await(v.raft.Barrier(applyTimeout).Error) != nil {
		return a
	}
	v.machine.mu.RLock()
	defer v.machine.mu.RUnlock()
	a.known, a.at = true, place{v.cluster, v.machine.state.Index()}
	a.lease, a.found = v.machine.state.Lease(k)
	return a
}

// waiters are those that wait for a proposal's outcome or an answer.
type waiters struct {
	mu      sync.Mutex
	results map[Origin]map[uint64]chan<- outcome

	readMu sync.Mutex
	reads  map[uint64]chan<- answer
	lastNo uint64
}

// add and remove need mu.
func (w *waiters) add(o Origin, no uint64, c chan<- outcome) {
	if w.results == nil {
		w.results = make(map[Origin]map[uint64]chan<- outcome)
	}
	if w.results[o] == nil {
		clear(w.results) // of former incarnations
		w.results[o] = make(map[uint64]chan<- outcome)
	}
	w.results[o][no] = c
	delete(w.results[o], no-maxIntake) // nobody waits that long
}

func (w *waiters) remove(o Origin, no uint64) { delete(w.results[o], no) }

// done hands out what a proposal came to.
func (w *waiters) done(o Origin, no uint64, what outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.results[o][no]; c != nil {
		delete(w.results[o], no)
		c <- what
	}
}

func (w *waiters) ask(c chan<- answer) uint64 {
	w.readMu.Lock()
	defer w.readMu.Unlock()
	if w.reads == nil {
		w.reads = make(map[uint64]chan<- answer)
	}
	w.lastNo++
	w.reads[w.lastNo] = c
	return w.lastNo
}

func (w *waiters) forget(no uint64) {
	w.readMu.Lock()
	defer w.readMu.Unlock()
	delete(w.reads, no)
}

func (w *waiters) answered(a answer) {
	w.readMu.Lock()
	defer w.readMu.Unlock()
	if c := w.reads[a.no]; c != nil {
		delete(w.reads, a.no)
		c <- a
	}
}
