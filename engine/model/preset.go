package model

import (
	"fmt"
	"strings"
)

// Preset is the physics of one model on one kind of worker.
type Preset struct {
	Name            string
	Linear          Linear // iteration time
	KVBytesPerToken int64  // over all layers and GPUs of the worker
	PoolTokens      int    // tokens of KV that fit in HBM
}

// DefaultPreset names the preset that stands for "a worker" unless told
// otherwise.
const DefaultPreset = "llama3-70b-h100-tp4"

// Presets returns the known presets. Their constants are fits of published
// operator profiles, checked against FLOP and bandwidth bounds; E includes the
// all-reduce of tensor parallelism. That of llama3-8b-a100 is optimistic (89 %
// of peak).
func Presets() []Preset {
	return []Preset{
		{"llama3-8b-a100", Linear{A: 11100, B: 10, C: 0.080, E: 50.3, Q: 0.0033}, 131072, 450_000},
		{"llama3-8b-h100", Linear{A: 5900, B: 10, C: 0.049, E: 22, Q: 0.00106}, 131072, 450_000},
		{"llama3-70b-a100-tp8", Linear{A: 25100, B: 10, C: 0.025, E: 112, Q: 0.0021}, 327680, 1_400_000},
		{"llama3-70b-h100-tp4", Linear{A: 21400, B: 10, C: 0.031, E: 65, Q: 0.0010}, 327680, 450_000},
		{"llama3-70b-h100-tp8", Linear{A: 14900, B: 10, C: 0.015, E: 41, Q: 0.00066}, 327680, 1_400_000},
	}
}

// PresetByName returns the preset called name; an empty name means
// DefaultPreset.
func PresetByName(name string) (Preset, error) {
	if name == "" {
		name = DefaultPreset
	}
	var names []string
	for _, p := range Presets() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("engine preset %q is unknown; use one of %s", name, strings.Join(names, ", "))
}
