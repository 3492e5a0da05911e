package sim

import (
	"fmt"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/sim/policy"
)

// What a restarted worker says of its new cache may come before the news that
// it is back, which must not make the router forget it, nor miss what follows.
// What the worker held before it died must be forgotten.
func TestNewsOfAReturnComesAfterEvents(t *testing.T) {
	sc := Default()
	sc.Fleet.Workers = 1
	p, err := newProduct(&sc, productConfig{
		Config: with(route.Rhizome), Class: func(int) cost.Class { return cost.Generic() }, Clock: new(clock.Virtual),
	})
	if err != nil {
		t.Fatal(err)
	}
	root := kv.Root(modelName, "", "")
	keys := []kv.Key{kv.Next(root, 1), kv.Next(kv.Next(root, 1), 2)}
	stores := func(seq uint64, block int) {
		op := kv.Op{Kind: kv.Insert, Tier: kv.HBM, Root: root, BlockTokens: uint32(sc.BlockTokens),
			Blocks: []kv.Block{{Hash: kv.EngineHash(keys[block]), Content: kv.Content(block + 1)}}}
		if block > 0 {
			op.HasParent, op.Parent, op.Root = true, kv.EngineHash(keys[block-1]), 0
		}
		p.Events(0, 0, &policy.Batch{Seq: seq, Ops: []kv.Op{op}})
	}
	id := uint64(0)
	expects := func(when string, blocks int) {
		t.Helper()
		id++
		c := p.Choose(0, &policy.Request{ID: id, Keys: keys, BlockTokens: sc.BlockTokens, PromptTokens: 3 * sc.BlockTokens})
		p.Done(0, id, policy.Usage{Failed: true})
		if want := blocks * sc.BlockTokens; c.CachedTokens != want {
			t.Errorf("%s: %d cached tokens expected, want %d", when, c.CachedTokens, want)
		}
	}
	for life := range 2 {
		stores(0, 0)
		if life > 0 {
			p.Up(0, 0, true)
		}
		expects(fmt.Sprintf("life %d, first batch", life), 1)
		stores(1, 1)
		expects(fmt.Sprintf("life %d, second batch", life), 2)
		p.Up(0, 0, false)
		expects(fmt.Sprintf("after life %d", life), 0)
	}
}

// Agents that announce their workflow are heard, others are not.
func TestAnnouncedWorkflowsReachTheRouter(t *testing.T) {
	sc := Default()
	p, err := newProduct(&sc, productConfig{Config: with(route.Rhizome), Class: func(int) cost.Class { return cost.Generic() }, Clock: new(clock.Virtual)})
	if err != nil {
		t.Fatal(err)
	}
	for _, workflow := range []string{"", "w1"} {
		q := p.query(&policy.Request{Workflow: workflow, PromptTokens: 100, BlockTokens: sc.BlockTokens})
		if q.Agent.Workflow != workflow || workflow != "" && q.Agent.StepsToExecution != -1 {
			t.Errorf("announced %q, heard %+v", workflow, q.Agent)
		}
	}
	sc.Workload.Announce = true
	if sc.Validate() == nil {
		t.Error("conversations announce workflows")
	}
}
