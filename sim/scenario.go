package sim

import (
	"fmt"
	"strings"
	"time"
)

// Column says what the routers under test know of the workers' constants.
type Column string

// The columns.
const (
	// Oracle: the true constants.
	Oracle Column = "oracle"
	// Learned: generic ones to start with, and what the online fit makes of
	// them. Every default is judged here.
	Learned Column = "learned"
	// Misspecified: each constant twice or half the true one, bandwidths a
	// third, and no fit.
	Misspecified Column = "misspecified"
)

// Columns are all of them.
var columns = []Column{Oracle, Learned, Misspecified}

// ParseColumn returns the column of a name.
func ParseColumn(s string) (Column, error) {
	for _, c := range columns {
		if string(c) == s {
			return c, nil
		}
	}
	return "", fmt.Errorf("unknown column %q: want oracle, learned or misspecified", s)
}

// Scenario is one experiment as data: what work meets what fleet, what goes
// wrong, and what the routers get to see.
type Scenario struct {
	Name string `json:"name"`
	// Set is the half of the data it belongs to: A, on which parameters are
	// tuned, or B, on which results are reported.
	Set      string   `json:"set"`
	Workload Workload `json:"workload"`
	Fleet    Fleet    `json:"fleet"`
	// Replicas is how many routers share the work, each request going to one
	// drawn at random.
	Replicas int     `json:"replicas"`
	Network  Network `json:"network"`
	Faults   []Fault `json:"faults,omitempty"`
	Goals    Goals   `json:"goals"`
	// BlockTokens is the size of a KV block. Engines default to 16; 64 is as
	// good for prompts of thousands of tokens and several times faster to
	// simulate.
	BlockTokens int `json:"block_tokens"`
}

// Goals are the objectives that goodput counts.
type Goals struct {
	TTFT time.Duration `json:"ttft_ns"`
	TPOT time.Duration `json:"tpot_ns"`
}

// Kind names a generator of work.
type Kind string

// The kinds of work.
const (
	Trace     Kind = "trace"     // a Mooncake trace
	Agents    Kind = "agents"    // agents in closed loop that share 12k prefixes
	Coding    Kind = "coding"    // agents as published statistics of coding sessions have them
	Chat      Kind = "chat"      // synthetic chat in open loop
	ChatFleet Kind = "chatfleet" // the published shape of fleet benchmarks
	Bursts    Kind = "bursts"    // 28 prompts of one prefix at once, over chat
	Diurnal   Kind = "diurnal"   // chat whose rate rises and falls
)

// Workload says what is asked for.
type Workload struct {
	Kind Kind `json:"kind"`
	// Half is which half of a trace is played, A or B; empty: all of it.
	Half string `json:"half,omitempty"`
	// Speed compresses the time of open-loop work.
	Speed float64 `json:"speed"`
	// Hold keeps a turn back until the turn before it was answered.
	Hold bool `json:"hold"`
	// Hidden says that clients of a trace name no sessions. Otherwise turns that
	// the trace's ids chain count as one session, as with clients that send a
	// session header.
	Hidden bool `json:"hidden,omitempty"`
	// Announce makes agents name their workflow with every request.
	Announce bool `json:"announce,omitempty"`
	// Sessions is the number of agents in closed loop, or what scales a fleet's
	// chat: see the catalogue.
	Sessions int `json:"sessions,omitempty"`
	// Limit cuts the work to so many requests; 0: all.
	Limit int `json:"limit,omitempty"`
	// Seconds is how long open-loop generators go on; 0: their own default.
	Seconds float64 `json:"seconds,omitempty"`
}

// Fleet says what workers there are. What is 0 or empty takes the preset's.
type Fleet struct {
	Workers int    `json:"workers"`
	Preset  string `json:"preset"`
	// Engine is vllm, vllm-offload or sglang: what the workers are, and so
	// which of its load a worker shows (see Profile).
	Profile Profile `json:"profile"`
	// CPUTimesHBM is the CPU tier's size; 0: no CPU tier.
	CPUTimesHBM float64 `json:"cpu_times_hbm"`
	// BytesPerSecond is the bandwidth of the link from the CPU tier.
	BytesPerSecond float64 `json:"bytes_per_second"`
	PoolTokens     int     `json:"pool_tokens,omitempty"`
	// BudgetTokens is what an iteration computes at most (the chunk budget).
	// Nobody tells routers; ours assumes 2048, which is the default here too.
	BudgetTokens int `json:"budget_tokens,omitempty"`
}

// Network says how what is known gets around.
type Network struct {
	EventDelay time.Duration `json:"event_delay_ns"` // of KV events, mean
	EventLoss  float64       `json:"event_loss"`     // share of batches lost, and replayed later
	Scrape     time.Duration `json:"scrape_ns"`      // period
	// GossipDelay is the mean delay of what replicas tell each other, GossipLoss
	// the share that is lost.
	GossipDelay time.Duration `json:"gossip_delay_ns"`
	GossipLoss  float64       `json:"gossip_loss"`
}

// FaultKind names what goes wrong.
type FaultKind string

// The faults.
const (
	Slow      FaultKind = "slow"       // workers run at 1/Factor of their speed
	Down      FaultKind = "down"       // workers die, and come back empty at Until
	Rho       FaultKind = "rho"        // foreign traffic takes Factor of the CPU link, on and off
	Partition FaultKind = "partition"  // replicas can't hear each other
	IndexDown FaultKind = "index-down" // an external index is out of reach
)

// Fault is one thing that goes wrong for a while.
type Fault struct {
	Kind    FaultKind     `json:"kind"`
	Workers []int         `json:"workers,omitempty"` // nil: all
	From    time.Duration `json:"from_ns"`
	Until   time.Duration `json:"until_ns"` // 0: for good
	Factor  float64       `json:"factor,omitempty"`
	// Period is the length of one on-and-off of Rho.
	Period time.Duration `json:"period_ns,omitempty"`
}

// Profile is what kind of engine the workers run, and what it shows.
type Profile string

// The profiles.
const (
	// VLLMPlain shows gauges of requests and KV use, and cache hits, but nothing
	// of its lower tiers.
	VLLMPlain Profile = "vllm-plain"
	// VLLMOffload also counts bytes and seconds of its CPU tier's link.
	VLLMOffload Profile = "vllm-offload"
	// SGLangLoads shows the tokens its queue waits for and its limits. Its
	// schedule computes prompts before it goes on decoding.
	SGLangLoads Profile = "sglang-loads"
)

// Describe says in a line what a scenario is.
func (s *Scenario) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", s.Workload.Kind)
	say := func(when bool, format string, args ...any) {
		if when {
			fmt.Fprintf(&b, format, args...)
		}
	}
	w, f := &s.Workload, &s.Fleet
	say(w.Sessions > 0, " of %d sessions", w.Sessions)
	say(w.Half != "", ", half %s", w.Half)
	say(w.Speed != 1, ", speed %g", w.Speed)
	say(w.Kind == Trace && !w.Hold, ", turns not held back")
	say(w.Hidden, ", sessions not named")
	say(w.Limit > 0, ", %d requests", w.Limit)
	fmt.Fprintf(&b, ", %d workers of %s (%s)", f.Workers, f.Preset, f.Profile)
	say(f.PoolTokens > 0, ", pool of %d tokens", f.PoolTokens)
	say(f.BudgetTokens > 0, ", chunks of %d tokens", f.BudgetTokens)
	say(f.CPUTimesHBM > 0 && f.BytesPerSecond != pcie, ", link of %g GB/s", f.BytesPerSecond/1e9)
	say(s.Replicas > 1, ", %d replicas", s.Replicas)
	say(s.Network.EventLoss > 0, ", events %v late and %g %% lost", s.Network.EventDelay, 100*s.Network.EventLoss)
	say(s.Network.GossipLoss > 0, ", gossip %v late and %g %% lost", s.Network.GossipDelay, 100*s.Network.GossipLoss)
	for _, x := range s.Faults {
		say(true, ", %s", x.Kind)
	}
	return b.String()
}
