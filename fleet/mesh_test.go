package fleet_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/vllm"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

// replica is one of several fleets that watch the same workers.
type replica struct {
	*ground
	node *mesh.Node
	stop func()
}

// newReplicas starts fleets that share what they know over real sockets.
func newReplicas(t *testing.T, n, workers int) []*replica {
	g, specs := newWorkers(t, workers, nil)
	return newReplicasOf(t, n, g, specs, time.Now)
}

// newReplicasOf has replicas watch workers that are there. wall is the clock of
// the second one's host.
func newReplicasOf(t *testing.T, n int, g *ground, specs []engine.Spec, wall func() time.Time) []*replica {
	t.Helper()
	var all []*replica
	var peers []string
	for i := range n {
		cfg := mesh.Config{Peers: peers, Transport: transport.Config{Listen: "127.0.0.1:0", Cluster: "test", Secrets: []string{strings.Repeat("0123456789abcdef", 2)}}}
		opts := transport.Options{Boot: fmt.Sprint("replica-", i)}
		if i == 1 {
			opts.Wall = wall
		}
		e, err := transport.Listen(cfg.Transport, opts)
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, e.Self().Addr.String())
		r := &replica{ground: &ground{t: t, workers: g.workers}}
		r.client.Transport = g.client.Transport
		r.node, err = mesh.New(cfg, mesh.Deps{Endpoint: e, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), Seed: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		r.stop = r.watch(fleet.Config{}, specs, r.node)
		all = append(all, r)
	}
	for _, r := range all {
		r.await("all replicas connected", func() bool { return r.connected() == n-1 })
	}
	return all
}

func (r *replica) connected() (up int) {
	r.node.Do(func(now clock.Instant, c *core.Core) {
		for _, p := range c.Peers(now) {
			if p.Up {
				up++
			}
		}
	})
	return up
}

// reading counts the workers whose events the replica reads itself.
func (r *replica) reading() (n int) {
	for _, c := range r.fleet.DescribeIndex().Caches {
		if c.Reads {
			n++
		}
	}
	return n
}

// awaitTruth waits until a replica's index is what the engines hold.
func (r *replica) awaitTruth(who string) {
	r.t.Helper()
	for i := range r.workers {
		var wrong []string
		r.awaitState(func() bool {
			wrong = r.compare(i, vllm.Decode)
			return len(wrong) == 0
		}, func() string {
			return fmt.Sprintf("the index of worker %d on %s to equal its engine: %d wrong, %q; %s", i, who, len(wrong), wrong[:min(3, len(wrong))], r.logs(i))
		})
	}
}

// Each worker's events are read by one replica, and all know them: what caches
// hold, how large blocks are, and that they are live; also after a worker
// restarted, and after the replica that read died.
func TestReplicasShareWhatTheyRead(t *testing.T) {
	all := newReplicas(t, 3, 2)
	one := all[0]
	one.await("each worker read by one replica", func() bool {
		return all[0].reading()+all[1].reading()+all[2].reading() == len(one.workers)
	})
	one.work(10, 1)
	for i, r := range all {
		r.awaitTruth(fmt.Sprint("replica ", i))
		for w := range r.workers {
			c := r.member(w).Cache()
			if !c.Live || c.BlockTokens != 16 || c.StoredTokens == 0 || c.Batches == 0 {
				t.Errorf("replica %d on worker %d: %+v", i, w, c)
			}
		}
	}
	one.workers[0].Restart(emulator.Drained)
	one.work(3, 2)
	for i, r := range all {
		r.awaitTruth(fmt.Sprint("after a worker's restart, replica ", i))
	}
	all[2].stop()
	one.work(3, 3)
	for i, r := range all[:2] {
		r.awaitTruth(fmt.Sprint("after a replica's end, replica ", i))
	}
	one.await("the others read all workers", func() bool { return all[0].reading()+all[1].reading() == len(one.workers) })
}

// logs tells what streams a replica holds of a worker.
func (r *replica) logs(i int) (all string) {
	t := r.member(i).Target
	r.node.Do(func(_ clock.Instant, c *core.Core) {
		first, standby := c.Reader(t.Worker)
		boot, note, _ := c.BootNote(t)
		all = fmt.Sprintf("boot %x (%s), read by %s, then %s, stats %+v", boot, note, first, standby, c.Stats())
		for id, s := range c.Log().All() {
			if id.Target == t {
				all += fmt.Sprintf("; %x at %d, skips %v, %+v", id.Boot, s.Next(), s.Skips(), s.Stats())
			}
		}
	})
	return all + fmt.Sprintf("; cache %+v", r.member(i).Cache())
}
