package load

import (
	"time"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/workload"
)

// What the stress demo makes hard for a router that predicts cached tokens.
const (
	// stressEventDelay is how late KV events leave: half a second of modelled
	// time at the demo's speed.
	stressEventDelay = 50 * time.Millisecond
	// StressPoolTokens is a good HBM for each worker: with four workers and 20 s
	// about a tenth of the blocks that come in have to go again.
	StressPoolTokens = 140_000
)

// Stress makes a demo hard for its router: KV events come late, one worker restarts half-way through, and
// the model thinks, which conversations send back and the chat template leaves
// out. It returns cfg and the fleet with that in them.
func Stress(cfg DemoConfig, fleet emulator.GroupConfig) (DemoConfig, emulator.GroupConfig) {
	cfg.RestartWorkerAfter = Middle(cfg.Duration)
	if cfg.RestartRouterAfter > 0 { // apart from each other
		cfg.RestartWorkerAfter /= 2
	}
	cfg.Chat = workload.DefaultChat()
	// Ids have no template, and what is said in a conversation must outweigh the
	// system prompts, which are easy.
	cfg.Chat.TokenShare = 0
	cfg.Chat.SystemTokens, cfg.Chat.MinTurns, cfg.Chat.MaxTurns, cfg.Chat.OutputTokens = 1000, 6, 12, 240
	fleet.EventDelay = stressEventDelay
	fleet.Template = emulator.TemplateThinking
	return cfg, fleet
}
