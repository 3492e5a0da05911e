package main

import (
	"fmt"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/engine/model"
)

// emulatedFleet are the flags that describe emulated workers.
type emulatedFleet struct {
	Workers int     `help:"How many workers." default:"4"`
	Preset  string  `help:"Engine, model and accelerator to emulate: ${enum}." enum:"${presets}" default:"llama3-8b-h100"`
	Speedup float64 `help:"How many times faster than life they run." default:"1"`
	Model   string  `help:"Name of the model they serve." default:"rhizome-emulated"`
}

func (f *emulatedFleet) config(sh *shell) (emulator.GroupConfig, error) {
	preset, err := model.PresetByName(f.Preset)
	if err != nil {
		return emulator.GroupConfig{}, err
	}
	return emulator.GroupConfig{Workers: f.Workers, Config: emulator.Config{
		Model: f.Model, Preset: preset, Speedup: f.Speedup, Log: sh.log,
	}}, nil
}

type emulateCommand struct {
	emulatedFleet
	Host      string `help:"Address they listen on." default:"127.0.0.1"`
	Port      int    `help:"HTTP port of the first worker; the next ones follow, and from 1000 above two ports each for KV events. 0 takes free ports." default:"18000"`
	EventForm string `help:"Wire form of KV events: map (vLLM 0.24 and later) or array." enum:"map,array" default:"map"`
}

func (c *emulateCommand) Run(sh *shell) error {
	cfg, err := c.config(sh)
	if err != nil {
		return err
	}
	if cfg.EventForm, err = emulator.ParseEventForm(c.EventForm); err != nil {
		return err
	}
	cfg.Host, cfg.BasePort, cfg.EventsBase, cfg.AnyPorts = c.Host, c.Port, c.Port+1000, c.Port == 0
	group, err := emulator.StartGroup(sh.ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(sh.stderr, "%d workers of %s (%s, %g× life). Route to them with:\n", c.Workers, c.Model, c.Preset, c.Speedup)
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
