package crdt_test

import (
	"fmt"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// An engine's batches go through a stream into the index.
func ExampleStream() {
	x := index.New(index.Config{})
	slot := x.Open(index.HBMThenOneTier)
	s := crdt.NewStream(crdt.StreamConfig{})

	apply := func(seq uint64, ops ...kv.Op) {
		var changes []index.Change
		outcome := s.Apply(seq, ops, func(c index.Change) { changes = append(changes, c) })
		x.Apply(slot, changes)
		fmt.Println("batch", seq, outcome)
	}
	root := kv.Root("model", "", "")
	prompt := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	apply(1, kv.Op{Kind: kv.Insert, HasParent: true, Parent: 71, Blocks: []kv.Block{
		{Hash: 72, Content: kv.ContentOf(prompt[4:])},
	}})
	apply(0, kv.Op{Kind: kv.Insert, Root: root, Blocks: []kv.Block{
		{Hash: 71, Content: kv.ContentOf(prompt[:4])},
	}})
	apply(2,
		kv.Op{Kind: kv.Remove, Hashes: []kv.EngineHash{72}},
		kv.Op{Kind: kv.Also, Tier: kv.CPU, Hashes: []kv.EngineHash{72}})

	for _, hit := range x.Match(kv.AppendKeys(nil, root, prompt, 4), nil) {
		fmt.Println(hit.HBM, "in HBM, then", hit.Lower, "in", hit.Tier)
	}
	// Output:
	// batch 1 pending
	// batch 0 applied
	// batch 2 applied
	// 1 in HBM, then 1 in cpu
}
