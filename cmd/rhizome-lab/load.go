package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/workload"
)

type loadCommand struct {
	Trace     string   `help:"Mooncake trace (JSON lines); default: the shipped excerpt, 500 requests." type:"existingfile" placeholder:"FILE"`
	URL       string   `name:"url" help:"Base URL of the router under test." default:"http://127.0.0.1:8080"`
	Against   []string `help:"Another router to play against in the same run, with a fleet of its own. Repeatable." sep:"none" placeholder:"NAME=URL"`
	Model     string   `help:"Model to ask for; default: the first that the router serves."`
	Limit     int      `help:"Play only so many requests of the trace."`
	Speed     float64  `help:"Compress the trace's time; emulated workers must run with the same --speedup." default:"1"`
	Seeds     int      `help:"Play seeds 1 to N, one after the other." default:"1"`
	MaxOutput int      `help:"Cut answers to so many tokens; 0: as in the trace."`
	Hold      bool     `help:"Send a turn only after the turn before it was answered."`
	Tokens    bool     `help:"Send prompts as token ids instead of text."`
	JSON      bool     `help:"Print the report as JSON."`
	Chart     string   `help:"Also draw the comparison as an SVG picture." placeholder:"FILE"`
}

func (c *loadCommand) Run(sh *shell) error {
	cfg := load.ReplayConfig{
		TraceName: "excerpt", Model: c.Model, Speed: c.Speed, Limit: c.Limit, MaxOutput: c.MaxOutput, Hold: c.Hold, TokenPrompts: c.Tokens,
		Targets: []load.Target{{Name: "ours", URL: c.URL}},
	}
	for _, a := range c.Against {
		name, url, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("--against %q: want NAME=URL", a)
		}
		cfg.Targets = append(cfg.Targets, load.Target{Name: name, URL: url})
	}
	if c.Seeds < 1 {
		return fmt.Errorf("--seeds %d: want at least 1", c.Seeds)
	}
	for seed := range c.Seeds {
		cfg.Seeds = append(cfg.Seeds, uint64(seed+1))
	}
	var err error
	if cfg.Trace, err = c.readTrace(&cfg); err != nil {
		return err
	}
	finish := func() {}
	if load.IsTerminal(sh.stderr) {
		cfg.Progress, finish = load.Bar(sh.stderr)
	}
	report, err := load.Replay(sh.ctx, cfg)
	finish()
	if err != nil {
		return err
	}
	if c.Chart != "" {
		if err := writeFile(c.Chart, report.WriteChart); err != nil {
			return fmt.Errorf("draw the chart: %w", err)
		}
	}
	if c.JSON {
		return report.WriteJSON(sh.stdout)
	}
	return report.WriteTable(sh.stdout)
}

// writeFile writes what write gives to a file, whole or with an error.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// readTrace reads the trace that was asked for and names it in cfg.
func (c *loadCommand) readTrace(cfg *load.ReplayConfig) ([]workload.Request, error) {
	if c.Trace == "" {
		return workload.Excerpt(c.Limit)
	}
	cfg.TraceName = c.Trace
	f, err := os.Open(c.Trace)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	trace, err := workload.ReadTrace(f, c.Limit)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", c.Trace, err)
	}
	return trace, nil
}
