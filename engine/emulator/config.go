package emulator

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// Defaults of Config.
const (
	DefaultModel        = "rhizome-emulated"
	DefaultMaxModelLen  = 131072
	DefaultMaxBodyBytes = 64 << 20
	DefaultMaxRequests  = 8192
	maxTokenInterval    = 20 * time.Millisecond
	anyLocalPort        = "127.0.0.1:0"
)

// Config describes one emulated worker. Zero fields take the defaults.
type Config struct {
	Name string // told in x-emulator-worker; default: the HTTP address

	Engine  Engine // default VLLM
	Version string // the release it claims to be; default the dialect's own

	// Addresses "host:port" to listen on; default 127.0.0.1 with any free port.
	Addr       string // HTTP
	EventsAddr string // KV events, a PUB socket
	ReplayAddr string // their replay, a ROUTER socket

	Model       string // the model it serves; default DefaultModel
	MaxModelLen int    // tokens of prompt and answer together; default DefaultMaxModelLen or what the pool admits, if less

	Preset      model.Preset       // zero: model.DefaultPreset
	Timing      model.Timing       // nil: the preset's
	Schedule    model.Schedule     // zero: the engine's usual
	BlockTokens int                // default 16
	PoolTokens  int                // HBM pool; default the preset's
	MaxSeqs     int                // default 256
	Tiers       []model.TierConfig // nil: CPU of four times the pool; empty: none. SGLang: CPU only

	Template Template // of chats; default TemplatePlain
	// Now is the wall clock of the worker's host: which day it is to
	// TemplateDated, and when a process started; default time.Now. It is called by
	// many goroutines at once.
	Now func() time.Time

	// NoRender leaves out vLLM's /render, as releases before 0.15 do, and later
	// ones unless they are told otherwise.
	NoRender bool

	Speedup   float64   // modelled time per wall time; default 1
	EventForm EventForm // default FormMap for vLLM, FormArray for SGLang
	Topic     string    // first frame of events; default empty, as the engines
	Seed      uint64    // of vLLM's block hashes and of lost events; workers of a fleet take different ones

	// Faults of the KV events: each batch leaves EventDelay later, in wall
	// time, and EventLoss of them, a share from 0 to 1, are not sent to
	// subscribers. Replay has those that have left.
	EventDelay time.Duration
	EventLoss  float64

	MaxBodyBytes int64 // of a request; default DefaultMaxBodyBytes
	MaxRequests  int   // in the worker at once, more get 503; default DefaultMaxRequests

	// TokenInterval is the least wall time between two chunks of one stream;
	// tokens due meanwhile share a chunk. First tokens and ends are never
	// held back. Default 1 ms for each unit of Speedup, at most 20 ms.
	TokenInterval time.Duration

	// Clock must follow real time; its zero is that of modelled time. Default:
	// starts now. Workers that share one agree on modelled time.
	Clock clock.Clock
	Log   *slog.Logger // default: none
}

func (c Config) withDefaults(d *dialect) Config {
	c.Engine = d.engine
	orString(&c.Version, d.version)
	orString(&c.Addr, anyLocalPort)
	orString(&c.EventsAddr, anyLocalPort)
	orString(&c.ReplayAddr, anyLocalPort)
	orString(&c.Model, DefaultModel)
	if c.Speedup == 0 {
		c.Speedup = 1
	}
	if c.BlockTokens == 0 {
		c.BlockTokens = model.DefaultBlockTokens
	}
	if c.EventForm == "" {
		c.EventForm = d.form
	}
	if c.Schedule == 0 {
		c.Schedule = d.schedule
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if c.MaxRequests == 0 {
		c.MaxRequests = DefaultMaxRequests
	}
	if c.TokenInterval == 0 {
		c.TokenInterval = time.Duration(min(c.Speedup*1e6, float64(maxTokenInterval)))
	}
	if c.Template == "" {
		c.Template = TemplatePlain
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Clock == nil {
		c.Clock = clock.Real()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func orString(p *string, def string) {
	if *p == "" {
		*p = def
	}
}

func (c Config) validate(d *dialect) error {
	switch {
	case c.EventDelay < 0 || !(c.EventLoss >= 0 && c.EventLoss <= 1):
		return fmt.Errorf("emulated worker: events late by %v, a share of %v lost; give a delay ≥ 0 and a share from 0 to 1", c.EventDelay, c.EventLoss)
	case c.Speedup <= 0 || c.Speedup > 1e6:
		return fmt.Errorf("emulated worker: speedup %v; give one in (0, 1e6]", c.Speedup)
	case c.MaxBodyBytes < 0 || c.MaxRequests < 0 || c.TokenInterval < 0 || c.MaxModelLen < 0:
		return errors.New("emulated worker: a limit is negative; leave it out for the default")
	}
	for _, t := range c.Tiers {
		if t.Tier < kv.NumTiers && d.media[t.Tier] == "" {
			return fmt.Errorf("emulated worker: %s does not tell of blocks on the tier %v; leave it out", c.Engine, t.Tier)
		}
	}
	if _, err := ParseTemplate(string(c.Template)); err != nil {
		return fmt.Errorf("emulated worker: %w", err)
	}
	_, err := ParseEventForm(string(c.EventForm))
	return err
}

// newModel builds the engine and settles what depends on it.
func (c *Config) newModel(d *dialect) (*model.Worker, error) {
	m, err := model.New(model.Config{
		Preset: c.Preset, Timing: c.Timing, Schedule: c.Schedule, RadixTree: d.radixTree, BlockTokens: c.BlockTokens,
		PoolTokens: c.PoolTokens, MaxSeqs: c.MaxSeqs, Tiers: c.Tiers,
	})
	if err != nil {
		return nil, err
	}
	admits := m.MaxTokens()
	if c.MaxModelLen == 0 {
		c.MaxModelLen = min(DefaultMaxModelLen, admits)
	}
	if c.MaxModelLen > admits {
		return nil, fmt.Errorf("emulated worker: context of %d tokens, but the KV pool admits %d; lower MaxModelLen or give a larger pool", c.MaxModelLen, admits)
	}
	return m, nil
}
