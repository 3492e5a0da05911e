package lease_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

// A history is what clients asked and were told, when, and in which cluster's log
// it happened. Clusters begin from copies of what others agreed on, so they are a
// tree: what counts for one is what its ancestors agreed on until the copy was
// made, and then its own. Each such line is judged as one history. What was
// agreed on after the copy was made is lost to that line; so it is documented.
type history struct {
	mu    sync.Mutex
	ops   []op
	pasts map[lease.Cluster][]lease.Begin
}

type op struct {
	client     int
	in         asked
	out        told
	at         lease.At // unless it is unknown
	call, back int64
}

type opKind int

const (
	opAcquire opKind = iota
	opRevoke
	opRead
	opBring // not asked by clients: a lease of a cluster that ended
)

// held is a workflow's lease; each client's grants have holders of their own.
type held struct {
	holder uint64
	token  lease.Token
}

type asked struct {
	kind   opKind
	key    byte
	expect lease.Token
	gives  held // without a token until it is known
}

type told struct {
	unknown bool
	done    bool
	holds   held // read, granted, or what stood against it
}

// leaseModel is one workflow's lease.
var leaseModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[byte][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(asked).key
			by[k] = append(by[k], op)
		}
		return slices.Collect(maps.Values(by))
	},
	Init: func() any { return held{} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(held), input.(asked), output.(told)
		switch {
		case in.kind == opRead:
			return out.holds == now, now
		case out.unknown && now.token == in.expect:
			return true, in.gives // nothing if it is a revocation
		case out.unknown:
			return true, now
		case out.done:
			return now.token == in.expect, in.gives
		}
		return now.token != in.expect && out.holds == now, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// never is when operations return of which nobody knows whether they were done.
const never = int64(1) << 61

func (h *history) note(o op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// saw notes from which clusters one comes, and reports whether it is new.
func (h *history) saw(c lease.Cluster, past []lease.Begin) bool {
	if n := len(past); n == 0 || past[n-1].Cluster != c {
		return false // it is about to begin
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.pasts[c]
	if len(past) > len(h.pasts[c]) {
		h.pasts[c] = past
	}
	return !known
}

// line returns what happened in a cluster and those it comes from, as far as it
// counts there, for porcupine. What lost operations and ended clusters may have
// given is in it as far as anybody met it.
func (h *history) line(c lease.Cluster) []porcupine.Operation {
	ends := map[lease.Cluster]uint64{c: 1 << 62} // up to where each counts
	past := h.pasts[c]
	for i := range past[:len(past)-1] {
		ends[past[i].Cluster] = past[i+1].From
	}
	began := never
	for _, o := range h.ops {
		if !o.out.unknown && o.at.Cluster == c {
			began = min(began, o.call)
		}
	}
	var line []porcupine.Operation
	put := func(o op, back int64) {
		line = append(line, porcupine.Operation{ClientId: o.client, Input: o.in, Call: 2 * o.call, Output: o.out, Return: 2*back + 1})
	}
	by := map[lease.Token]held{}
	for _, o := range h.ops {
		by[o.out.holds.token] = o.out.holds
	}
	given, met := map[held]bool{}, map[held]bool{}
	gone := map[uint64]bool{} // holders whose grant counts here
	for _, o := range h.ops {
		end, counts := ends[o.at.Cluster]
		switch {
		case o.out.unknown, !counts, o.at.Index > end, o.at.Cluster != c && o.in.kind == opRead && o.back >= began:
		default:
			put(o, o.back)
			if o.out.holds != (held{}) {
				met[o.out.holds] = true
			}
			// What it took the place of may have been seen in another cluster alone.
			if o.out.done && o.in.expect != (lease.Token{}) {
				met[by[o.in.expect]] = true
			}
			if o.out.done && o.in.kind == opAcquire {
				given[o.out.holds], gone[o.out.holds.holder] = true, true
			}
		}
	}
	for _, o := range h.ops {
		if o.out.unknown && o.in.kind == opRevoke {
			put(o, never)
		}
		if o.in.kind != opAcquire {
			continue
		}
		for x := range met { // order-free: porcupine sorts
			if x.holder != o.in.gives.holder || given[x] || gone[x.holder] {
				continue
			}
			m := op{client: o.client, in: o.in, out: told{unknown: true}, call: o.call}
			m.in.gives = x
			if o.out.unknown {
				put(m, never)
			}
			m.in.kind, m.in.expect = opBring, lease.Token{}
			put(m, never)
		}
	}
	return line
}

// judge has porcupine look at each line, and returns what is wrong.
func (h *history) judge() error {
	var errs []error
	clusters := map[lease.Cluster]int{}
	for _, o := range h.ops {
		if !o.out.unknown {
			clusters[o.at.Cluster]++
		}
	}
	for _, c := range slices.Sorted(maps.Keys(clusters)) {
		if h.pasts[c] == nil {
			errs = append(errs, fmt.Errorf("%d operations in cluster %x, of which nobody knows where it comes from", clusters[c], c))
			continue
		}
		line := h.line(c)
		if result := porcupine.CheckOperationsTimeout(leaseModel, line, time.Minute); result != porcupine.Ok {
			errs = append(errs, fmt.Errorf("cluster %x, which comes from %+v: %d operations are %s", c, h.pasts[c], len(line), result))
		}
	}
	return errors.Join(errs...)
}

// clients ask replicas drawn anew each time, until they are told to stop; pace is
// how much longer than usually they wait in between.
func (p *played) client(id int, rand *rand.Rand) {
	last, n := map[byte]held{}, uint64(0)
	for {
		select {
		case <-p.stop:
			return
		case <-time.After(time.Duration(20+rand.IntN(100)) * time.Millisecond * time.Duration(p.pace.Load())):
		}
		all := *p.asking.Load()
		r := all[rand.IntN(len(all))]
		o := op{client: id, in: asked{kind: opKind(rand.IntN(3)), key: byte(rand.IntN(6))}, call: time.Now().UnixNano()}
		key, known := o.in.key, last[o.in.key]
		if o.in.kind == opRevoke && known == (held{}) {
			continue // nothing to revoke
		}
		var err error
		if o.in.kind == opRead {
			var l lease.Lease
			if l, o.at, err = r.VerifiedAt(p.t.Context(), lease.Key{key}); err != nil {
				continue
			}
			o.out.holds = heldOf(l)
			last[key] = o.out.holds
		} else {
			o.in.expect = known.token
			c := lease.Command{Kind: lease.Revoke, Key: lease.Key{key}, Expect: known.token}
			if o.in.kind == opAcquire {
				n++
				o.in.gives.holder = uint64(id)<<32 | n
				c.Kind, c.Holder = lease.Acquire, lease.Holder{Target: kv.Target{Worker: kv.WorkerID(o.in.gives.holder)}}
			}
			var events []lease.Event
			events, o.at, err = r.DoAt(p.t.Context(), c)
			switch {
			case errors.Is(err, lease.ErrUnknown):
				o.out.unknown = true
			case err != nil || events[0].Kind == lease.Ignored:
				continue // it was not done, and won't be
			default:
				e := events[0]
				o.out.done, o.out.holds = e.Kind == lease.Granted || e.Kind == lease.Revoked, heldOf(e.Lease)
				if e.Kind == lease.Revoked {
					o.out.holds = held{}
				}
				if o.in.kind == opAcquire && o.out.done {
					o.in.gives = o.out.holds
				}
				last[key] = o.out.holds
			}
		}
		o.back = time.Now().UnixNano()
		p.note(o)
		p.look()
	}
}

func heldOf(l lease.Lease) held { return held{uint64(l.Holder.Target.Worker), l.Token} }
