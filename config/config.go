// Package config is the router's configuration: it puts each room's own Config
// together to one document, reads that strictly, and prints it back.
//
// The central type is [Config]; start reading there, then at [Source.Load],
// which is the way from a file, the environment and the command line to a
// checked Config. What a setting may be is said once, in the struct that holds
// it: its YAML key, its doc comment (which becomes the comment in
// rhizome.example.yaml), its Validate, and the tag `config:"…"` with
//
//	fixed   it can't change while the router runs
//	secret  it is never shown, and may be file:PATH or env:NAME
//	zero    0 is a value of its own, not a way to ask for the default
//	off     the word off is allowed, and stored as -1
//
// On a struct a tag holds for all fields below. A struct with the YAML tag ",inline"
// has its keys stand beside those of the struct around it. The package starts nothing: who
// wants to reload asks [Source.Fingerprint] for changes and loads again.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/lease"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/state"
)

// Config is all that a replica is made from.
type Config struct {
	// Name is this replica's name in response headers. Default: the host's.
	Name string `yaml:"name" config:"fixed"`
	// Grace is how long running requests may take after the end was asked for,
	// 0 or more. Default 30 s.
	Grace time.Duration `yaml:"grace" config:"fixed,zero"`
	// Seed is that of all random choices; 0 draws one.
	Seed uint64 `yaml:"seed" config:"fixed"`
	// Log says what is logged to standard error.
	Log LogConfig `yaml:"log"`
	// Workers are the engines that requests go to. Each is a list of keys as
	// below, or one line of text as --worker takes it.
	Workers []engine.Spec `yaml:"workers"`
	// Discovery says where workers are found besides.
	Discovery discover.Config `yaml:"discovery"`
	// Gateway is the front door: listeners, limits, time-outs, callers.
	Gateway gateway.Config `yaml:"gateway"`
	// Route is the decision.
	Route route.Config `yaml:"route"`
	// Fleet says how workers are watched.
	Fleet fleet.Config `yaml:"fleet" config:"fixed"`
	// Index bounds what is kept of the blocks that workers say they hold.
	Index index.Config `yaml:"index" config:"fixed"`
	// Approx bounds what is kept of what was sent where, for prompts whose
	// tokens aren't known.
	Approx index.ApproxConfig `yaml:"approx" config:"fixed"`
	// Prompt says how the tokens of text prompts become known.
	Prompt prompt.Config `yaml:"prompt"`
	// Mesh says with which other replicas this one shares what it knows: which
	// worker holds what, how busy workers are, what operators decided. Without
	// secrets or certificates it is alone, and opens no port for that.
	Mesh mesh.Config `yaml:"mesh" config:"fixed"`
	// Leases says how long a workflow of an agent keeps its worker, as far as the
	// replicas of a mesh agree on it.
	Leases lease.Config `yaml:"leases" config:"fixed"`
	// State says where what was learned is kept beyond a restart.
	State state.Config `yaml:"state" config:"fixed"`
}

// LogConfig says what is logged.
type LogConfig struct {
	// Level is the least level that is logged: debug, info, warn or error.
	Level slog.Level `yaml:"level" config:"zero"`
	// Format is text or json, one line an event.
	Format string `yaml:"format" config:"fixed"`
}

// The formats of a log.
const (
	TextLog = "text"
	JSONLog = "json"
)

// Default returns the configuration that nobody changed anything of: without
// workers.
func Default() Config {
	return Config{
		Grace: 30 * time.Second, Log: LogConfig{Level: slog.LevelInfo, Format: TextLog},
		Discovery: discover.Config{}.WithDefaults(), Gateway: gateway.Config{}.WithDefaults(), Route: route.DefaultConfig(), Fleet: fleet.Config{}.WithDefaults(),
		Index: index.Config{}.WithDefaults(), Approx: index.ApproxConfig{}.WithDefaults(),
		Prompt: prompt.Config{}.WithDefaults(), Mesh: mesh.Config{}.WithDefaults(), Leases: lease.Config{}.WithDefaults(), State: state.Config{}.WithDefaults(),
	}
}

// maxWorkers bounds the list of workers.
const maxWorkers = 16384

// validate returns the problems of each section, as the section's own Validate
// says them: they begin with the key, below the section, that they are about.
func (c *Config) validate(report func(section string, err error)) {
	if c.Grace < 0 {
		report("", fmt.Errorf("grace is %v: want 0 or more", c.Grace))
	}
	if c.Log.Format != TextLog && c.Log.Format != JSONLog {
		report("log", fmt.Errorf("format is %q: want %s or %s", c.Log.Format, TextLog, JSONLog))
	}
	report("discovery", errors.Join(c.Discovery.Validate(), checkPresets(c.Discovery)))
	report("gateway", c.Gateway.Validate())
	report("route", c.Route.Validate())
	report("fleet", c.Fleet.Validate())
	report("index", c.Index.Validate())
	report("approx", c.Approx.Validate())
	report("prompt", c.Prompt.Validate())
	report("mesh", c.Mesh.Validate())
	report("leases", c.Leases.Validate())
	report("state", c.State.Validate())
	if len(c.Workers) > maxWorkers {
		report("", fmt.Errorf("workers are %d: want at most %d", len(c.Workers), maxWorkers))
		return
	}
	names := make(map[string]int, len(c.Workers))
	for i := range c.Workers {
		report(fmt.Sprintf("workers[%d]", i), c.checkWorker(i, names))
	}
}

// checkWorker puts a worker's spec in canonical form; names holds those of the
// workers before it.
func (c *Config) checkWorker(i int, names map[string]int) error {
	spec, err := c.Workers[i].Canonical()
	if err != nil {
		return err
	}
	c.Workers[i] = spec
	name := spec.ID
	if name == "" {
		name = spec.URL
	}
	var errs []error
	if first, twice := names[name]; twice {
		errs = append(errs, fmt.Errorf("this is the same worker as workers[%d]: %s", first, name))
	} else {
		names[name] = i
	}
	if spec.Preset != "" {
		if _, err := model.PresetByName(spec.Preset); err != nil {
			errs = append(errs, fmt.Errorf("preset: %w", err))
		}
	}
	return errors.Join(errs...)
}

// checkPresets says which presets of pools of workers there are not.
func checkPresets(d discover.Config) error {
	var errs []error
	check := func(key string, i int, p discover.PoolConfig) {
		if p.Preset == "" {
			return
		}
		if _, err := model.PresetByName(p.Preset); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d].pool.preset: %w", key, i, err))
		}
	}
	for i, name := range d.DNS {
		check("dns", i, name.Pool)
	}
	for i, pods := range d.Kubernetes.Pods {
		check("kubernetes.pods", i, pods.Pool)
	}
	return errors.Join(errs...)
}
