package gateway

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/engine"
)

// ModelConfig is what is special about one model name.
type ModelConfig struct {
	// To makes the name an alias: requests go to these models instead, each in
	// proportion to its weight. A session stays with one of them. Default: the
	// name is the workers' own.
	To []SplitConfig `yaml:"to,omitempty"`
	// Rewrites are the changes that may be made to requests for the model, each
	// touching the bytes of one value alone; default none. "usage" asks
	// streaming workers for token counts and keeps the extra event from callers
	// that did not ask; "dp_rank" puts the data-parallel rank into the body, for
	// engines that don't read the header; "served_model_name" replaces an
	// alias by the model it stands for; "decode" sends compressed bodies plain,
	// to engines that don't read them (vLLM's and SGLang's own servers don't).
	Rewrites []string `yaml:"rewrites,omitempty"`
	// MaxModelLen is the most tokens that prompt and output may have together,
	// where workers don't tell; default: what they tell.
	MaxModelLen int `yaml:"max_model_len,omitempty"`
}

// SplitConfig is one model that an alias stands for.
type SplitConfig struct {
	// Model is its name, as the workers list it.
	Model string `yaml:"model"`
	// Weight is its share of the requests, relative to the others'; default 1.
	Weight float64 `yaml:"weight,omitempty"`
}

func validateModels(models map[string]ModelConfig) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := models[name]
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("models[%q]: %w", name, fmt.Errorf(format, args...)))
		}
		if name == everyModel && (len(m.To) > 0 || m.MaxModelLen > 0) {
			bad("all models can have rewrites in common, nothing else")
		}
		for _, to := range m.To {
			switch {
			case to.Model == "":
				bad("to: model is missing")
			case !(to.Weight >= 0 && to.Weight < 1e9):
				bad("to: the weight of %s is %v: want a number above 0", to.Model, to.Weight)
			case len(models[to.Model].To) > 0:
				bad("to: %s is an alias too: name the model itself", to.Model)
			}
		}
		for _, r := range m.Rewrites {
			if !slices.Contains(rewriteNames, r) {
				bad("rewrites: %q is none of %s", r, strings.Join(rewriteNames, ", "))
			}
		}
		if m.MaxModelLen < 0 {
			bad("max_model_len is %d: want 0 (as workers tell) or more tokens", m.MaxModelLen)
		}
	}
	return errors.Join(errs...)
}

// resolve returns the model that a name stands for. Of several, key draws one:
// the same key always the same.
func (g *Gateway) resolve(name, key string) string {
	to := g.cfg.Models[name].To
	if len(to) == 0 {
		return name
	}
	var sum float64
	for _, t := range to {
		sum += t.weight()
	}
	at := float64(xxh3.HashString(key)>>11) / (1 << 53) * sum
	for _, t := range to {
		if at -= t.weight(); at < 0 {
			return t.Model
		}
	}
	return to[len(to)-1].Model
}

func (s SplitConfig) weight() float64 {
	if s.Weight == 0 {
		return 1
	}
	return s.Weight
}

// everyModel is the name in Config.Models that stands for all models.
const everyModel = "*"

// rewritesOf returns the rewrites that are on for a request that names a model
// and goes to another, or the same.
func (g *Gateway) rewritesOf(named, model string) []string {
	all := g.cfg.Models[everyModel].Rewrites
	for _, name := range []string{named, model} {
		for _, r := range g.cfg.Models[name].Rewrites {
			if !slices.Contains(all, r) {
				all = append(all[:len(all):len(all)], r)
			}
		}
	}
	return all
}

// listed returns the models that callers may name: those of the workers, and
// those that the config names.
func (g *Gateway) listed() []engine.Model {
	all := g.deps.Models()
	for _, name := range slices.Sorted(maps.Keys(g.cfg.Models)) {
		if name != everyModel && !slices.ContainsFunc(all, func(m engine.Model) bool { return m.ID == name }) {
			all = append(all[:len(all):len(all)], engine.Model{ID: name, MaxModelLen: g.cfg.Models[name].MaxModelLen})
		}
	}
	return all
}

// expected reports whether the config names a model, so that it is known
// though no worker serves it now.
func (g *Gateway) expected(name string) bool {
	if _, ok := g.cfg.Models[name]; ok && name != everyModel {
		return true
	}
	for _, m := range g.cfg.Models {
		for _, to := range m.To {
			if to.Model == name {
				return true
			}
		}
	}
	return false
}
