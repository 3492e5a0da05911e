package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rhizome-router/rhizome/config"
)

type checkCommand struct {
	File         string `arg:"" optional:"" help:"The configuration file. Without one the defaults and the environment are checked." env:"RHIZOME_CONFIG"`
	JSON         bool   `help:"Print JSON."`
	PrintExample bool   `help:"Print a file that sets every setting to its default, with what it means, and check nothing."`
}

func (c *checkCommand) Run(sh *shell) error {
	if c.PrintExample {
		return config.WriteExample(sh.stdout)
	}
	loaded, err := configSource(c.File).Load()
	if c.JSON {
		return c.writeJSON(sh, loaded, err)
	}
	if err != nil {
		return err
	}
	name := c.File
	if name == "" {
		name = "no file"
	}
	fmt.Fprintf(sh.stdout, "# OK: %s, hash %s\n", name, loaded.Hash)
	if len(loaded.Config.Workers) == 0 {
		fmt.Fprintln(sh.stdout, "# There are no workers: rhizome serve wants them by --worker.")
	}
	return loaded.WriteYAML(sh.stdout)
}

// writeJSON tells the outcome to a program.
func (c *checkCommand) writeJSON(sh *shell, loaded *config.Loaded, err error) error {
	type problem struct {
		From    config.From `json:"from"`
		Name    string      `json:"name,omitempty"`
		Line    int         `json:"line,omitempty"`
		Column  int         `json:"column,omitempty"`
		Key     string      `json:"key,omitempty"`
		Message string      `json:"message"`
	}
	out := struct {
		OK       bool             `json:"ok"`
		Hash     string           `json:"hash,omitempty"`
		Settings []config.Setting `json:"settings,omitempty"`
		Problems []problem        `json:"problems,omitempty"`
	}{OK: err == nil}
	var bad *config.Error
	if errors.As(err, &bad) {
		for _, p := range bad.Problems {
			o := p.Origin
			out.Problems = append(out.Problems, problem{o.From, o.Name, o.Line, o.Column, p.Key, p.Text})
		}
	}
	if loaded != nil {
		out.Hash, out.Settings = loaded.Hash, loaded.Settings()
	}
	encoder := json.NewEncoder(sh.stdout)
	encoder.SetIndent("", "  ")
	if wrote := encoder.Encode(out); wrote != nil {
		return wrote
	}
	if err != nil {
		return errTold
	}
	return nil
}
