package bubble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

// clients ask replicas for leases of workflows, a replica drawn anew each time,
// and note what they are told.
type clients struct {
	w    *world
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	ops      []chaos.LeaseOp
	clusters []chaos.LeaseCluster
}

const (
	askers    = 4
	workflows = 8
	// pauseLeast and pauseMost are between a client's operations. With so few the
	// judge's search stays short.
	pauseLeast, pauseMost = 150 * time.Millisecond, 450 * time.Millisecond
)

// ask begins to ask.
func (w *world) ask() *clients {
	ctx, stop := context.WithCancel(context.Background())
	c := &clients{w: w, stop: stop}
	for id := range askers {
		rng := clock.Rand(w.seed, fmt.Sprint("chaos/bubble/client ", id))
		c.wg.Go(func() { c.client(ctx, id, rng) })
	}
	return c
}

// end ends it, and writes down what came of it.
func (c *clients) end() {
	c.stop()
	c.wg.Wait()
	c.w.h.Leases, c.w.h.Clusters = c.ops, c.clusters
}

func (c *clients) client(ctx context.Context, id int, rng *rand.Rand) {
	last := make(map[byte]chaos.Lease) // as they were seen last, by workflow
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauseLeast + time.Duration(rng.Int64N(int64(pauseMost-pauseLeast)))):
		}
		all := *c.w.running.Load()
		if len(all) == 0 {
			continue
		}
		r := all[rng.IntN(len(all))]
		x := rng.Float64()
		key := byte(workflows * x * x) // some are asked for often, some seldom
		op := chaos.LeaseOp{Client: id, Key: fmt.Sprint(key), Kind: chaos.Read, Call: c.w.now()}
		switch x = rng.Float64(); {
		case x < 0.3:
			op.Kind, op.Expect, op.Gives = chaos.Acquire, last[key].Token, uint64(id+1)<<32|n
		case x < 0.55 && last[key] != chaos.Lease{}:
			op.Kind, op.Expect = chaos.Renew, last[key].Token
		case x < 0.65 && last[key] != chaos.Lease{}:
			op.Kind, op.Expect = chaos.Revoke, last[key].Token
		}
		if !do(ctx, r, lease.Key{key}, &op) {
			continue
		}
		op.Return = c.w.now()
		if !op.Unknown {
			last[key] = op.Lease
		}
		c.note(&op, all)
	}
}

// do does an operation; false if it was not done, and won't be.
func do(ctx context.Context, r *replica, key lease.Key, op *chaos.LeaseOp) bool {
	if op.Kind == chaos.Read {
		l, at, err := r.leases.VerifiedAt(ctx, key)
		op.Lease, op.Cluster, op.Index = leaseOf(l), uint64(at.Cluster), at.Index
		op.OK = op.Lease != chaos.Lease{}
		return err == nil
	}
	c := lease.Command{Kind: commands[op.Kind], Key: key, Expect: lease.Token(op.Expect)}
	if op.Kind == chaos.Acquire {
		c.Holder = lease.Holder{Target: kv.Target{Worker: kv.WorkerID(op.Gives), Rank: kv.NoRank}, Boot: 1}
	}
	events, at, err := r.leases.DoAt(ctx, c)
	switch {
	case errors.Is(err, lease.ErrUnknown):
		op.Unknown = true
		return true
	case err != nil || events[0].Kind == lease.Ignored:
		return false
	}
	e := events[0]
	op.Cluster, op.Index = uint64(at.Cluster), at.Index
	op.OK = e.Kind == lease.Granted || e.Kind == lease.Renewed || e.Kind == lease.Revoked
	if e.Kind != lease.Revoked {
		op.Lease = leaseOf(e.Lease)
	}
	return true
}

var commands = map[chaos.LeaseKind]lease.Kind{chaos.Acquire: lease.Acquire, chaos.Renew: lease.Renew, chaos.Revoke: lease.Revoke}

func leaseOf(l lease.Lease) chaos.Lease {
	return chaos.Lease{Holder: uint64(l.Holder.Target.Worker), Token: chaos.Token(l.Token)}
}

// note notes an operation, and where the clusters come from that replicas are in.
func (c *clients) note(op *chaos.LeaseOp, all []*replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = append(c.ops, *op)
	for _, r := range all {
		at, past := r.leases.Stand()
		if n := len(past); n == 0 || past[n-1].Cluster != at.Cluster {
			continue // it is about to begin
		}
		i := slices.IndexFunc(c.clusters, func(x chaos.LeaseCluster) bool { return x.Cluster == uint64(at.Cluster) })
		if i < 0 {
			i = len(c.clusters)
			c.clusters = append(c.clusters, chaos.LeaseCluster{Cluster: uint64(at.Cluster)})
		}
		if x := &c.clusters[i]; len(past) > len(x.Past) {
			x.Past = nil
			for _, b := range past {
				x.Past = append(x.Past, chaos.LeaseBegin{Cluster: uint64(b.Cluster), From: b.From})
			}
		}
	}
}
