package model

import (
	"fmt"
	"strings"
)

// Preset is the physics of one model on one kind of worker.
type Preset struct {
	Name string
	// Linear is the iteration time, or where Timing is set the Linear that
	// comes closest, for those who need one.
	Linear          Linear
	KVBytesPerToken int64  // over all layers of full attention and GPUs of the worker
	PoolTokens      int    // tokens of KV that fit in HBM
	Timing          Timing // nil: Linear
	WindowTokens    int    // of a sliding window that other layers have; 0: no such layers
}

// timing returns the iteration time.
func (p Preset) timing() Timing {
	if p.Timing != nil {
		return p.Timing
	}
	return p.Linear
}

// DefaultPreset names the preset that stands for "a worker" unless told
// otherwise.
const DefaultPreset = "llama3-70b-h100-tp4"

// Presets returns the known presets. The constants of llama3 are fits of
// published operator profiles, checked against FLOP and bandwidth bounds; E
// includes the all-reduce of tensor parallelism. That of llama3-8b-a100 is
// optimistic (89 % of peak).
func Presets() []Preset {
	return []Preset{
		linearPreset("llama3-8b-a100", Linear{A: 11100, B: 10, C: 0.080, E: 50.3, Q: 0.0033}, 131072, 450_000),
		linearPreset("llama3-8b-h100", Linear{A: 5900, B: 10, C: 0.049, E: 22, Q: 0.00106}, 131072, 450_000),
		linearPreset("llama3-70b-a100-tp8", Linear{A: 25100, B: 10, C: 0.025, E: 112, Q: 0.0021}, 327680, 1_400_000),
		linearPreset("llama3-70b-h100-tp4", Linear{A: 21400, B: 10, C: 0.031, E: 65, Q: 0.0010}, 327680, 450_000),
		linearPreset("llama3-70b-h100-tp8", Linear{A: 14900, B: 10, C: 0.015, E: 41, Q: 0.00066}, 327680, 1_400_000),
		mockerPreset(),
		gptOSSPreset(),
	}
}

func linearPreset(name string, l Linear, kvBytes int64, poolTokens int) Preset {
	return Preset{Name: name, Linear: l, KVBytesPerToken: kvBytes, PoolTokens: poolTokens}
}

// mockerPreset is Dynamo's mocked engine with its default pool of 16384 blocks
// of 64 tokens. Its Linear has the constants of prefill, and of decoding in the
// lower half of the pool, where −25.74u² + 54.01u + 5.74 is near its chord
// 41.14u + 5.74; n² is twice the pairs.
func mockerPreset() Preset {
	const pool = 16384 * 64
	return Preset{
		Name: "dynamo-mocker", KVBytesPerToken: 131072, PoolTokens: pool, Timing: Mocker{PoolTokens: pool},
		Linear: Linear{A: 5740, C: 41140.0 / pool, E: 15.18, Q: 8.42e-4},
	}
}

// gptOSSPreset is a model of the shape of gpt-oss-120b on two H100s: 36 layers,
// every second with a window of 128 tokens, 64 query and 8 KV heads of 64
// (its published config.json), 5.1 G of 117 G parameters active, in MXFP4.
// The constants are bounds, scaled by what the fits of llama3-70b-h100-tp4
// reach of theirs, not fits of a profile:
//
//   - A: 61 GB of weights, all read once a batch touches every expert, at 80 %
//     of 2 × 3.35 TB/s. A batch of a few sequences is faster in truth.
//   - C, WindowC: 18 layers × 2 × 8 × 64 × 2 B = 36,864 B a token, at 79 %.
//   - E: 2 × 5.1 G FLOP a token at 30 % of 2 × 989 TFLOP/s, experts being small.
//   - Q, WindowQ: 4 × 64 × 64 × 18 FLOP a pair at half of peak.
//   - Pool: 160 GB × 0.9 without weights and 8 GB of activations is 75 GB, in
//     blocks that hold 18 layers each; a full and a windowed block of the same
//     tokens are two.
func gptOSSPreset() Preset {
	l := Linear{A: 11400, B: 10, C: 0.0070, E: 17, Q: 0.0003}
	return Preset{
		Name: "gpt-oss-120b-h100-tp2", Linear: l, KVBytesPerToken: 36864, PoolTokens: 2_000_000, WindowTokens: 128,
		Timing: Windowed{Linear: l, WindowC: l.C, WindowQ: l.Q, Window: 128},
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
