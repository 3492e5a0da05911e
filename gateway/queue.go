package gateway

import (
	"time"

	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/route"
)

// Queue has requests wait while every worker is saturated; *route.Router is the
// one of the product, and says what each method does.
type Queue interface {
	Enter(q route.Query, placed func(*route.Decision, error)) (*route.Decision, *route.Waiting, error)
	Leave(w *route.Waiting) bool
	Examine(m *fleet.Member)
	CloseQueue()
}

// placement is what a waiting request is told.
type placement struct {
	decision *route.Decision
	err      error
}

// lookAgain is how long after a request's time is over the queue is looked at
// again, if it was not told so: a reload may have given it more. It doubles each
// time, up to lookSeldom, so that thousands who wait don't keep the router busy.
const (
	lookAgain  = 100 * time.Millisecond
	lookSeldom = 5 * time.Second
)

// place lets the router decide about x, and waits for its turn if that is what
// it decides. A client that goes away leaves the queue at once.
func (g *Gateway) place(x *exchange, q route.Query) (*route.Decision, error) {
	queue := g.deps.Queue
	if queue == nil {
		return g.deps.Decider.Decide(q)
	}
	told := make(chan placement, 1)
	d, w, err := queue.Enter(q, func(d *route.Decision, err error) { told <- placement{d, err} })
	if w == nil {
		return d, err
	}
	late := time.NewTimer(w.MaxWait())
	defer late.Stop()
	for again := lookAgain; ; again = min(2*again, lookSeldom) {
		select {
		case p := <-told:
			return p.decision, p.err
		case <-late.C:
			queue.Examine(nil) // nothing else may happen that makes it look
			late.Reset(again)
		case <-x.r.Context().Done():
			if !queue.Leave(w) {
				if p := <-told; p.decision != nil {
					g.deps.Decider.Done(p.decision, route.Outcome{Result: route.Cancelled})
				}
			}
			return nil, stopped(x.r.Context())
		}
	}
}
