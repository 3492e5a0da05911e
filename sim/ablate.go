package sim

import (
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/route"
)

// An ablation leaves one part of the product's policy out, or puts one in that
// is off by default, to see what it is worth.
type ablation struct {
	name, doc string
	change    func(*route.Config)
}

const (
	without = Ours + "-minus-"
	and     = Ours + "-plus-"
)

func omit(o cost.Omit) func(*route.Config) {
	return func(c *route.Config) { c.Omit |= o }
}

// ablations are all of them, in the order of the formula.
func ablations() []ablation {
	return []ablation{
		{without + "queue", "without the wait for prefills ahead", omit(cost.OmitQueue)},
		{without + "clock", "the queue goes by its tokens alone", omit(cost.OmitClock)},
		{without + "admission", "without the wait for room in the KV pool", omit(cost.OmitAdmission)},
		{without + "load", "lower tiers' hits cost nothing to load", omit(cost.OmitLoad)},
		{without + "pairs", "prefill is linear in its tokens", omit(cost.OmitPairs)},
		{without + "promise-doubt", "promised hits count in full, and at once", omit(cost.OmitUnsure)},
		{without + "own-decode", "w_d 0", func(c *route.Config) { c.Weights.OwnDecode = 0 }},
		{without + "prefill-externality", "w_p 0", func(c *route.Config) { c.Weights.PrefillExternality = 0 }},
		{without + "queue-externality", "w_q 0", func(c *route.Config) { c.Weights.QueueExternality = 0 }},
		{without + "workflow", "nothing is expected of returns", omit(cost.OmitWorkflow)},
		{without + "near-tie", "the least cost wins, however close others are", func(c *route.Config) { c.NearTie = route.Margins{} }},
		{without + "peers-margin", "the near-tie band knows no other replicas", func(c *route.Config) { c.NearTie.Peers = 0 }},
		{without + "slow-start", "workers that come back get as much as the others at once", func(c *route.Config) { c.SlowStart = 0 }},
		{and + "kv-externality", "w_k 0.1", func(c *route.Config) { c.Weights.KVExternality = 0.1 }},
		{and + "eviction", "w_e 0.3", func(c *route.Config) { c.Weights.Eviction = 0.3 }},
		{and + "head-of-line", "α_ho 1000 µs", func(c *route.Config) { c.Weights.HeadOfLineMicros = 1000 }},
		{and + "tier-gate", "the AIMD gate on lower tiers", func(c *route.Config) { c.TierGate = true }},
		{and + "temperature", "T 5 ms", func(c *route.Config) { c.TemperatureMicros = 5000 }},
	}
}

// Ablations returns the product's policy, and it without or with each of its
// parts.
func Ablations() []Policy {
	out := []Policy{Rhizome(Ours, cost.DefaultWeights())}
	for _, a := range ablations() {
		c := with(route.Rhizome)
		a.change(&c)
		out = append(out, shipped(a.name, a.doc, c))
	}
	return out
}
