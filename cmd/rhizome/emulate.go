package main

import (
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

type emulateCommand struct {
	Workers int     `help:"How many workers." default:"4"`
	Preset  string  `help:"Engine, model and accelerator to emulate: ${enum}." enum:"${presets}" default:"llama3-8b-h100"`
	Speedup float64 `help:"How many times faster than life they run." default:"1"`
	Model   string  `help:"Name of the model they serve." default:"rhizome-emulated"`
	Engine  string  `help:"Whose API, events and metrics they speak: ${enum}." enum:"vllm,sglang" default:"vllm"`
	Host    string  `help:"Address they listen on." default:"127.0.0.1"`
	Port    int     `help:"HTTP port of the first worker; the next ones follow, and from 1000 above two ports each for KV events. 0 takes free ports." default:"18000"`

	PoolTokens  int `help:"KV tokens in each worker's HBM. 0: the preset's." default:"0"`
	CPUTokens   int `name:"cpu-tokens" help:"KV tokens in each worker's CPU memory. 0: four times the HBM." default:"0"`
	BlockTokens int `help:"Tokens in a KV block." default:"16"`

	Template string `help:"Chat template, each with a trait of real models': ${enum} (see engine/emulator/template.go)." enum:"${templates}" default:"plain"`
	NoRender bool   `help:"Have no /render, as vLLM before 0.15, and later unless VLLM_ENABLE_SCALE_OUT_ENDPOINTS=1."`

	EventForm  string        `help:"Wire form of KV events, map or array; default: map for vllm, array for sglang." enum:",map,array" default:""`
	EventDelay time.Duration `help:"How much later KV events leave." default:"0s"`
	EventLoss  float64       `help:"Share of KV event batches that subscribers miss, 0 to 1; replay has them." default:"0"`
}

func (c *emulateCommand) config(sh *shell) (emulator.GroupConfig, error) {
	preset, err := model.PresetByName(c.Preset)
	if err != nil {
		return emulator.GroupConfig{}, err
	}
	cfg := emulator.Config{
		Engine: emulator.Engine(c.Engine), Model: c.Model, Preset: preset, Speedup: c.Speedup,
		PoolTokens: c.PoolTokens, BlockTokens: c.BlockTokens,
		Template: emulator.Template(c.Template), NoRender: c.NoRender,
		EventForm: emulator.EventForm(c.EventForm), EventDelay: c.EventDelay, EventLoss: c.EventLoss, Log: sh.log,
	}
	if c.CPUTokens != 0 {
		cfg.Tiers = []model.TierConfig{{Tier: kv.CPU, CapacityTokens: c.CPUTokens}}
	}
	return emulator.GroupConfig{
		Config: cfg, Workers: c.Workers, Host: c.Host, BasePort: c.Port, EventsBase: c.Port + 1000, AnyPorts: c.Port == 0,
	}, nil
}

func (c *emulateCommand) Run(sh *shell) error {
	cfg, err := c.config(sh)
	if err != nil {
		return err
	}
	group, err := emulator.StartGroup(sh.ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(sh.stderr, "%d workers of %s (%s, %s, %g× life). Route to them with:\n", c.Workers, c.Model, c.Engine, c.Preset, c.Speedup)
	fmt.Fprintln(sh.stdout, "rhizome serve \\")
	for i, w := range group.Workers() {
		end := " \\"
		if i == len(group.Workers())-1 {
			end = ""
		}
		fmt.Fprintf(sh.stdout, "  --worker '%s'%s\n", w.Spec(), end)
	}
	<-sh.ctx.Done()
	return group.Close()
}
