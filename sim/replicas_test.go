package sim

import (
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/workload"
)

// Replicas share what one of them reads, through losses, a partition and a
// worker's restart in it; what each knows in the end is what the worker said.
func TestReplicasKnowTheSame(t *testing.T) {
	sc := Default()
	smallFleet(&sc)
	sc.Replicas, sc.Fleet.Workers, sc.Workload.Limit = 3, 6, 150
	sc.Network.GossipLoss = 0.05
	sc.Faults = []Fault{
		{Kind: Partition, From: time.Second, Until: 8 * time.Second},
		{Kind: Down, Workers: []int{2}, From: 2 * time.Second, Until: 4 * time.Second},
	}
	plan, err := sc.plan(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	// One more, late, keeps the world going until all has been told.
	plan.Jobs = append(plan.Jobs, workload.Job{At: 60 * time.Second, Prompt: plan.Jobs[0].Prompt, Answer: plan.Jobs[0].Answer, Session: -1})
	p := Rhizome(Ours, cost.DefaultWeights())
	w, err := newWorld(&sc, Learned, 1, plan, &p, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.play(); err != nil {
		t.Fatal(err)
	}
	w.replicas[0].mesh.node.Do(func(_ clock.Instant, c *core.Core) {
		if s := c.Stats(); s.Ops == 0 || s.Corrupt > 0 || s.LostOps > 0 {
			t.Errorf("%+v", s)
		}
	})
	for i, k := range w.workers {
		readers := 0
		for _, r := range w.replicas {
			c := r.mesh.members[i].Cache()
			if r.mesh.reads[i] {
				readers++
			}
			// The last request's last batches may be on their way when it ends.
			first := w.replicas[0].mesh.members[i].Cache()
			late := i == w.flights[len(w.flights)-1].worker.n
			if !c.Live || !late && (c.Next != first.Next || c.HeldTokens != first.HeldTokens) {
				t.Errorf("worker %d: replica %d knows %+v, replica 0 %+v", i, r.n, c, first)
			}
			if said := uint64(len(k.said)); c.Next+5 < said {
				t.Errorf("worker %d said %d batches, replica %d is at %d", i, said, r.n, c.Next)
			}
		}
		if readers != 1 {
			t.Errorf("worker %d is read by %d replicas", i, readers)
		}
	}
}
