package model

import (
	"errors"
	"fmt"

	"github.com/rhizome-router/rhizome/kv"
)

// Schedule says which work an iteration takes on.
type Schedule uint8

const (
	// Mixed runs decodes and prefill chunks together (vLLM).
	Mixed Schedule = iota
	// PrefillFirst lets decodes wait while a prompt can be computed (SGLang's
	// default).
	PrefillFirst
)

// Admission says when the first of the waiting requests is taken on.
type Admission uint8

const (
	// WholePrompt: when the KV of its whole prompt fits under the watermark
	// (vLLM, which by default reserves the full input).
	WholePrompt Admission = iota
	// PerChunk: when that of its next chunk does; blocks are allocated chunk by
	// chunk, so long prompts can run into each other and be preempted (vLLM V1
	// without that reserve).
	PerChunk
	// SGLangRatio: when its prompt fits besides what all are expected to put
	// out, which is a varying share of the tokens they may put out at most. See
	// ratio.go.
	SGLangRatio
)

// Defaults of Config.
const (
	DefaultBlockTokens    = 16
	DefaultBudgetTokens   = 2048
	DefaultMaxSeqs        = 256
	DefaultWatermark      = 0.95
	DefaultCPUTimesHBM    = 4
	DefaultBytesPerSecond = 64e9 // a PCIe 5 x16 link, nominal
	DefaultSetupMicros    = 20
)

// Config describes one worker. Zero fields take the defaults.
type Config struct {
	Preset Preset // zero: DefaultPreset
	Timing Timing // nil: the preset's

	BlockTokens  int      // tokens in a KV block
	PoolTokens   int      // HBM pool; 0: the preset's
	BudgetTokens int      // tokens that one iteration computes at most
	MaxSeqs      int      // admitted sequences at most (max_num_seqs)
	Watermark    float64  // share of the pool that admission may fill, 0…1
	Schedule     Schedule // default Mixed
	Admit        Admission

	// RadixTree makes the cache in HBM a tree that holds each block once, as
	// SGLang's: what two sequences computed is kept once, and the blocks that
	// decoding fills enter when the sequence finishes. Otherwise, as in vLLM,
	// both are kept, and blocks enter as they fill.
	RadixTree bool

	// Tiers are the lower tiers, fastest first: what leaves one spills into
	// the next. Nil: a CPU tier of four times the HBM pool on a 64 GB/s link, or
	// none where the preset has a sliding window, which lower tiers don't keep.
	// Empty but not nil: none.
	Tiers []TierConfig

	// WriteThrough copies blocks to the first lower tier as they fill, as vLLM's
	// offloading connector does; the copies are told when the iteration ends
	// and take no time. Otherwise blocks move down when HBM evicts them.
	WriteThrough bool

	// Noise, when set, returns a factor on the duration of the next iteration,
	// or of a whole stretch of iterations that only decode the same sequences.
	// It must be positive and depend on nothing but its own seeded state.
	Noise func() float64

	// SetupNoise, when set, returns a factor on the set-up time of the next
	// transfer, on the same terms.
	SetupNoise func() float64
}

// TierConfig is one lower tier with its link up to HBM.
type TierConfig struct {
	Tier           kv.Tier
	CapacityTokens int
	BytesPerSecond float64 // 0: DefaultBytesPerSecond
	SetupMicros    float64 // per transfer; negative: none, 0: DefaultSetupMicros

	// Sharing lets all transfers run at once at an equal share of the
	// bandwidth. Otherwise they run one after the other.
	Sharing bool
}

func (c Config) withDefaults() Config {
	if c.Preset.Name == "" && c.Preset.PoolTokens == 0 {
		c.Preset, _ = PresetByName(DefaultPreset)
	}
	if c.Timing == nil {
		c.Timing = c.Preset.timing()
	}
	orInt(&c.BlockTokens, DefaultBlockTokens)
	orInt(&c.PoolTokens, c.Preset.PoolTokens)
	orInt(&c.BudgetTokens, DefaultBudgetTokens)
	orInt(&c.MaxSeqs, DefaultMaxSeqs)
	if c.Watermark == 0 {
		c.Watermark = DefaultWatermark
	}
	if c.Tiers == nil && c.Preset.WindowTokens == 0 {
		c.Tiers = []TierConfig{{Tier: kv.CPU, CapacityTokens: DefaultCPUTimesHBM * c.PoolTokens}}
	}
	tiers := make([]TierConfig, len(c.Tiers))
	for i, t := range c.Tiers {
		if t.BytesPerSecond == 0 {
			t.BytesPerSecond = DefaultBytesPerSecond
		}
		if t.SetupMicros == 0 {
			t.SetupMicros = DefaultSetupMicros
		}
		t.SetupMicros = max(t.SetupMicros, 0)
		tiers[i] = t
	}
	c.Tiers = tiers
	return c
}

func orInt(p *int, def int) {
	if *p == 0 {
		*p = def
	}
}

// validate reports the first field out of range; c has its defaults.
func (c Config) validate() error {
	blocks := 0
	if c.BlockTokens > 0 {
		blocks = c.PoolTokens / c.BlockTokens
	}
	switch {
	case c.BlockTokens < 1:
		return fmt.Errorf("engine model: block of %d tokens; give at least 1", c.BlockTokens)
	case blocks < 2 || blocks > 1<<28:
		return fmt.Errorf("engine model: pool of %d tokens is %d blocks of %d; give 2 to %d blocks", c.PoolTokens, blocks, c.BlockTokens, 1<<28)
	case c.MaxSeqs < 1:
		return fmt.Errorf("engine model: at most %d sequences; give at least 1", c.MaxSeqs)
	case c.BudgetTokens < c.MaxSeqs:
		return fmt.Errorf("engine model: a budget of %d tokens starves %d sequences; give at least as many tokens", c.BudgetTokens, c.MaxSeqs)
	case c.Watermark <= 0 || c.Watermark > 1:
		return fmt.Errorf("engine model: watermark %v; give a share in (0, 1]", c.Watermark)
	case c.Schedule > PrefillFirst:
		return fmt.Errorf("engine model: schedule %d is unknown", c.Schedule)
	case c.Admit > SGLangRatio:
		return fmt.Errorf("engine model: admission %d is unknown", c.Admit)
	case c.Preset.WindowTokens < 0:
		return fmt.Errorf("engine model: window of %d tokens; give 0 for none", c.Preset.WindowTokens)
	case c.Preset.WindowTokens > 0 && len(c.Tiers) > 0:
		return errors.New("engine model: lower tiers don't keep the blocks of a sliding window; leave them out or take a preset without one")
	}
	seen := kv.HBM.Mask()
	for _, t := range c.Tiers {
		if t.Tier >= kv.NumTiers || seen.Has(t.Tier) {
			return fmt.Errorf("engine model: tier %v cannot be a lower tier here; name each of cpu, disk, remote, other at most once", t.Tier)
		}
		seen |= t.Tier.Mask()
		if t.CapacityTokens < 0 || t.CapacityTokens/c.BlockTokens > 1<<28 || t.BytesPerSecond <= 0 {
			return fmt.Errorf("engine model: tier %v of %d tokens at %g B/s; give a capacity ≥ 0 and a bandwidth > 0", t.Tier, t.CapacityTokens, t.BytesPerSecond)
		}
	}
	return nil
}
