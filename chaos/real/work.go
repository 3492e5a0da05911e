//go:build linux

package real

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/workload"
)

// work plays a scenario's load from the hub, as clients behind a balancer do
// that knows which replicas are ready, and nothing of sessions.
type work struct {
	c     *cluster
	s     *chaos.Scenario
	asker *load.Asker
	up    []atomic.Bool // replicas that the balancer sends requests to
	ids   atomic.Uint64

	mu       sync.Mutex
	rng      *rand.Rand
	requests []chaos.Request
	said     map[string]int // what requests that failed were told, and how often
}

const (
	// answerPatience is how long a whole answer may take.
	answerPatience = 60 * time.Second
	// failurePause is how long a client waits after a failure.
	failurePause = 500 * time.Millisecond
	// workflowShare of the sessions are workflows of agents.
	workflowShare = 0.5
	// balanceEvery is the time between two looks of the balancer at a replica.
	balanceEvery = 200 * time.Millisecond
)

func newWork(c *cluster, s *chaos.Scenario, seed uint64) (*work, error) {
	chat := workload.DefaultChat()
	chat.Seed, chat.Concurrent, chat.Think, chat.PauseShare = seed, s.Load.Sessions, s.Load.Think, 0
	chat.SystemTokens, chat.UserTokens, chat.OutputTokens, chat.TokenShare = 1500, 120, 40, 0.5
	if err := chat.Validate(); err != nil {
		return nil, err
	}
	asker, err := load.NewAsker(modelName, chat, c.dataTransport(), c.clock, answerPatience)
	if err != nil {
		return nil, err
	}
	return &work{c: c, s: s, asker: asker, up: make([]atomic.Bool, len(c.replicas)), rng: clock.Rand(seed, "chaos/real/work"), said: make(map[string]int)}, nil
}

// run plays until sending ends, and returns when every request has ended.
func (w *work) run(ctx, sending context.Context) {
	defer w.asker.Close()
	balancing, stop := context.WithCancel(ctx)
	var balancers, clients sync.WaitGroup
	for _, r := range w.c.replicas {
		w.up[r.n].Store(true)
		balancers.Go(func() { w.balance(balancing, r) })
	}
	for place := range w.s.Load.Sessions {
		clients.Go(func() {
			for n := place; sending.Err() == nil; n += w.s.Load.Sessions {
				w.converse(ctx, sending, n)
			}
		})
	}
	clients.Wait()
	stop()
	balancers.Wait()
}

// balance follows whether a replica wants requests.
func (w *work) balance(ctx context.Context, r *replica) {
	client := &http.Client{Transport: w.c.dataTransport(), Timeout: time.Second}
	defer client.CloseIdleConnections()
	for w.c.clock.Sleep(ctx, balanceEvery) == nil {
		w.up[r.n].Store(ready(ctx, client, r))
	}
}

// pick draws a replica that is ready, or stays with one that is.
func (w *work) pick(last int) (n int, ok bool) {
	if w.s.Load.Stay && last >= 0 && w.up[last].Load() {
		return last, true
	}
	var up []int
	for i := range w.up {
		if w.up[i].Load() {
			up = append(up, i)
		}
	}
	if len(up) == 0 {
		return -1, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return up[w.rng.IntN(len(up))], true
}

// converse holds one session. A turn that failed is asked again.
func (w *work) converse(ctx, sending context.Context, n int) {
	workflow := ""
	if w.draw() < workflowShare {
		workflow = fmt.Sprintf("workflow %d", n)
	}
	talk := w.asker.Open(n, workflow)
	last := -1
	for {
		think, more := talk.Think()
		if !more || w.c.clock.Sleep(sending, think) != nil {
			return
		}
		for !w.turn(ctx, talk, &last) {
			if w.c.clock.Sleep(sending, failurePause) != nil {
				return
			}
		}
	}
}

func (w *work) draw() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64()
}

// turn asks one turn and notes what came of it; false where it is to be asked
// again.
func (w *work) turn(ctx context.Context, talk *load.Conversation, last *int) bool {
	n, ok := w.pick(*last)
	if !ok {
		return false // no replica is up: no request was made
	}
	*last = n
	r := w.c.replicas[n]
	q := chaos.Request{ID: w.ids.Add(1), At: w.c.now(), Replica: n, Worker: -1}
	a := talk.Ask(ctx, r.url())
	if ctx.Err() != nil {
		q.Outcome = chaos.Open
	}
	q.End, q.Sent, q.Ends = w.c.now(), q.At, 1
	if a.First != 0 {
		q.First = time.Duration(a.First) - time.Duration(w.c.zero.Load())
	}
	q.PromptTokens, q.CachedTokens = a.PromptTokens, a.CachedTokens
	q.Worker = slices.IndexFunc(w.c.workers, func(x *worker) bool { return x.url() == a.Worker })
	w.judge(&q, &a)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, q)
	if a.Kind != "" && len(w.said) < maxSaid {
		what := fmt.Sprintf("%s, faultless %v, replica %d: %v", q.Outcome, q.Faultless, n, a.Err)
		w.said[what]++
	}
	return a.Kind == ""
}

// maxSaid bounds the failures that are remembered by their words.
const maxSaid = 1000

// faultMargin is how long after a fault its traces may still be met: resets that
// are on their way, a process that begins to listen.
const faultMargin = 250 * time.Millisecond

// judge says how a request ended.
func (w *work) judge(q *chaos.Request, a *load.Answer) {
	from := max(0, q.At-faultMargin)
	lost := w.c.replicas[q.Replica].troubled(from, q.End)
	workerLost := false
	for _, x := range w.c.workers {
		if (q.Worker < 0 || q.Worker == x.n) && x.troubled(from, q.End) {
			workerLost = true
		}
	}
	q.Faultless = !lost && !workerLost
	if q.Outcome == "" {
		q.Outcome = outcome(a, lost, workerLost)
	}
}

// outcome is how a request ended, by its failure and by who was down meanwhile.
// A transfer that breaks off is how a worker's death in the middle of an answer
// is told; an answer that ends in order and is not whole is never allowed.
func outcome(a *load.Answer, replicaLost, workerLost bool) chaos.Outcome {
	kind := a.Kind
	switch {
	case kind == "":
		return chaos.Answered
	case strings.HasPrefix(kind, "status_"):
		return chaos.Refused
	case kind == load.KindStream:
		return chaos.WorkerLost
	case kind == load.KindTimeout, kind == load.KindCancelled:
		return chaos.Open
	case kind == load.KindConnect, replicaLost:
		return chaos.ReplicaLost
	case workerLost && errors.Is(a.Err, io.ErrUnexpectedEOF):
		return chaos.WorkerLost
	}
	return chaos.Short
}
