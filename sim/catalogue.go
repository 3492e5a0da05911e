package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/engine/model"
)

// The speeds of links in the catalogue, bytes per second.
const (
	pcie     = 20e9 // what offloading reaches on PCIe in practice
	slowLink = 4e9  // about where loading and computing cost the same
	thinLink = 2e9  // where computing is cheaper for short contexts
)

// Default returns the scenario from which all others differ: the conversation
// trace on 8 workers, as recorded.
func Default() Scenario {
	return Scenario{
		Name: "conversation", Set: "B", BlockTokens: 64, Replicas: 1,
		Workload: Workload{Kind: Trace, Speed: 1, Hold: true},
		Fleet:    Fleet{Workers: 8, Preset: model.DefaultPreset, Profile: VLLMOffload, CPUTimesHBM: 4, BytesPerSecond: pcie},
		Network:  Network{EventDelay: 10 * time.Millisecond, Scrape: time.Second, GossipDelay: 20 * time.Millisecond},
		Goals:    Goals{TTFT: 5 * time.Second, TPOT: 100 * time.Millisecond},
	}
}

// Catalogue returns every scenario, those of set A first.
func Catalogue() []Scenario {
	with := func(name string, change func(s *Scenario)) Scenario {
		s := Default()
		s.Name = name
		change(&s)
		return s
	}
	trace := func(half string, speed float64) func(*Scenario) {
		return func(s *Scenario) { s.Set, s.Workload.Half, s.Workload.Speed = half, half, speed }
	}
	agents := func(set string, n int) func(*Scenario) {
		return func(s *Scenario) { s.Set, s.Workload = set, Workload{Kind: Agents, Sessions: n, Speed: 1} }
	}
	chat := func(kind Kind, seconds float64) Workload { return Workload{Kind: kind, Speed: 1, Seconds: seconds} }
	return []Scenario{
		with("tune-conversation", trace("A", 1)),
		with("tune-conversation-1.5", trace("A", 1.5)),
		with("tune-agents-64", agents("A", 64)),
		with("tune-chat", func(s *Scenario) { s.Set, s.Workload = "A", chat(Chat, 300) }),

		with("conversation", trace("B", 1)),
		with("conversation-1.5", trace("B", 1.5)),
		with("conversation-open-1.5", func(s *Scenario) { trace("B", 1.5)(s); s.Workload.Hold = false }),
		with("conversation-hidden", func(s *Scenario) { trace("B", 1.5)(s); s.Workload.Hidden = true }),
		with("agents-64", agents("B", 64)),
		with("agents-96", agents("B", 96)),
		with("agents-160", agents("B", 160)),
		with("coding-agents", func(s *Scenario) { s.Workload = Workload{Kind: Coding, Sessions: 24, Speed: 1} }),
		with("fleet", fleetOf(8, 60)),
		with("fleet-lossy", func(s *Scenario) {
			smallFleet(s)
			s.Network.GossipDelay, s.Network.GossipLoss = 200*time.Millisecond, 0.1
		}),
		with("fleet-partition", func(s *Scenario) {
			smallFleet(s)
			s.Faults = []Fault{{Kind: Partition, From: 10 * time.Second, Until: 40 * time.Second}}
		}),
		with("fleet-index-down", func(s *Scenario) {
			smallFleet(s)
			s.Faults = []Fault{{Kind: IndexDown, From: 10 * time.Second, Until: 40 * time.Second}}
		}),
		with("bursts", func(s *Scenario) { s.Workload = chat(Bursts, 200) }),
		with("diurnal", func(s *Scenario) { s.Workload = chat(Diurnal, 300) }),
		with("slow-worker", func(s *Scenario) {
			agents("B", 64)(s)
			s.Faults = []Fault{{Kind: Slow, Workers: []int{3}, From: 60 * time.Second, Factor: 3}}
		}),
		with("churn", func(s *Scenario) {
			s.Workload, s.Fleet.Workers, s.BlockTokens = chat(Chat, 60), 120, 128
			s.Faults = []Fault{{Kind: Down, Workers: numbers(20), From: 20 * time.Second, Until: 40 * time.Second}}
		}),
		with("bursty-rho", func(s *Scenario) {
			tight(s)
			s.Faults = []Fault{{Kind: Rho, Factor: 0.9, Period: 20 * time.Second}}
		}),
		with("link-4", func(s *Scenario) { tight(s); s.Fleet.BytesPerSecond = slowLink }),
		with("link-2", func(s *Scenario) { tight(s); s.Fleet.BytesPerSecond = thinLink }),
		with("plain-vllm", func(s *Scenario) { trace("B", 1.5)(s); s.Fleet.Profile = VLLMPlain }),
		with("small-chunks", func(s *Scenario) { trace("B", 1.5)(s); s.Fleet.BudgetTokens = 512 }),
		with("sglang", func(s *Scenario) { agents("B", 96)(s); s.Fleet.Profile = SGLangLoads }),
		with("late-events", func(s *Scenario) {
			agents("B", 96)(s)
			s.Network.EventDelay, s.Network.EventLoss = 250*time.Millisecond, 0.01
		}),
		with("mocker", func(s *Scenario) { trace("B", 1)(s); s.Fleet.Preset = "dynamo-mocker" }),
		with("hybrid", func(s *Scenario) {
			agents("B", 96)(s)
			s.Fleet.Preset, s.Fleet.CPUTimesHBM = hybridPreset, 0
		}),
	}
}

// tight is agents whose contexts don't fit into HBM together, so that the CPU
// tier and its link decide.
func tight(s *Scenario) {
	s.Workload, s.Fleet.PoolTokens = Workload{Kind: Agents, Sessions: 130, Speed: 1}, 300_000
}

// hybridPreset is the preset whose attention is partly windowed.
const hybridPreset = "gpt-oss-120b-h100-tp2"

// fleetOf is the published shape of fleet benchmarks, scaled to that many
// workers behind so many replicas.
func fleetOf(replicas, workers int) func(*Scenario) {
	return func(s *Scenario) {
		s.Workload = Workload{Kind: ChatFleet, Speed: 1, Seconds: 180}
		s.Fleet.Workers, s.Replicas, s.BlockTokens = workers, replicas, 128
	}
}

// smallFleet is that of 24 workers for 45 s, for what goes wrong between
// replicas.
func smallFleet(s *Scenario) {
	fleetOf(8, 24)(s)
	s.Workload.Seconds = 45
}

func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Find returns scenarios of the catalogue by a comma-separated list of names.
func Find(names string) ([]Scenario, error) {
	all := Catalogue()
	var out []Scenario
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == strings.TrimSpace(name) })
		if i < 0 {
			known := make([]string, len(all))
			for i := range all {
				known[i] = all[i].Name
			}
			return nil, fmt.Errorf("unknown scenario %q: want some of %s", name, strings.Join(known, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}
