package load

import (
	"context"

	"github.com/rhizome-router/rhizome/engine/emulator"
)

// EmulatedWorkers returns a [DemoConfig.StartWorkers] that starts a group of
// emulated workers in this process. The number of workers is the demo's; cfg's
// Speedup must be [DemoConfig.Speedup].
func EmulatedWorkers(cfg emulator.GroupConfig) func(ctx context.Context, n int) (*Workers, error) {
	return func(ctx context.Context, n int) (*Workers, error) {
		cfg.Workers = n
		if cfg.Model == "" {
			cfg.Model = emulator.DefaultModel
		}
		group, err := emulator.StartGroup(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return &Workers{
			Lines: group.Specs(), Model: cfg.Model, Close: group.Close,
			Restart: func(i int) error { return group.Workers()[i].Restart(emulator.Drained) },
			Stats: func() []WorkerStats {
				var all []WorkerStats
				for _, s := range group.Stats() {
					all = append(all, workerStats(s))
				}
				return all
			},
		}, nil
	}
}

func workerStats(s emulator.Stats) WorkerStats {
	w := WorkerStats{
		Name: s.Name, Requests: s.AllLives.Requests, Running: s.Running, Waiting: s.Waiting,
		HitHBMTokens: s.AllLives.HBMHitTokens, HitTierTokens: s.AllLives.TierHitTokens,
		StoredBlocks: s.AllLives.StoredBlocks, EvictedBlocks: s.AllLives.EvictedBlocks,
	}
	if n := s.HBM.CapacityBlocks; n > 0 {
		w.KVFill = float64(max(s.HBM.CachedBlocks, s.HBM.UsedBlocks)) / float64(n)
	}
	return w
}
