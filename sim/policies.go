package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/sim/policy"
)

// Policy is a router that the laboratory can play.
type Policy struct {
	Name string
	Doc  string // in a line
	// Peer says that it is somebody else's rule, Fitted that its parameters
	// were tuned here.
	Peer, Fitted bool
	// Scrape is how often it reads the workers' metrics; 0: as the scenario has
	// it.
	Scrape time.Duration

	// Prices says that it goes by the workers' constants, so that columns differ.
	Prices bool

	make func(w *world, column Column) ([]policy.Router, error)
}

// Ours is the name of the product's own default policy.
const Ours = "rhizome"

// Policies returns all policies, the product's first and the peers' after them.
func Policies() []Policy {
	ttft, reading := with(route.Rhizome), with(route.ArticleCost)
	ttft.Weights, reading.Article.Literal = cost.Weights{}, true
	all := []Policy{
		Rhizome(Ours, cost.DefaultWeights()),
		Queued("rhizome-queue", route.DefaultQueue()),
		shipped("article", "the article's cost, corrected reading", with(route.ArticleCost)),
		shipped("article-literal", "the article's cost to the letter", reading),
		shipped("ttft-only", "the expected wait for the first token and nothing else", ttft),
		shipped("sticky", "the session's own worker, whatever its load", with(route.Sticky)),
		shipped("least-requests", "fewest requests in flight", with(route.LeastRequests)),
		shipped("round-robin", "each worker in turn", with(route.RoundRobin)),
		shipped("random", "uniform", with(route.Random)),
	}
	for _, p := range policy.All() {
		all = append(all, peer(p, p.Make))
	}
	return all
}

// with is the product as it ships, but for its policy and without a queue, which
// refuses requests where others let them wait: see Queued.
func with(p route.Policy) route.Config {
	c := route.DefaultConfig()
	c.Policy, c.Queue = p, route.QueueConfig{}
	return c
}

// Rhizome returns the product's policy with the given rates.
func Rhizome(name string, w cost.Weights) Policy {
	c := with(route.Rhizome)
	c.Weights = w
	return shipped(name, "least expected added time", c)
}

// Queued returns the product's policy with a queue in the router.
func Queued(name string, q route.QueueConfig) Policy {
	c := with(route.Rhizome)
	c.Queue = q
	return shipped(name, "the same, and requests wait in the router while every worker is saturated", c)
}

// peer returns a peer's policy as maker makes it.
func peer(p policy.Named, maker policy.Maker) Policy {
	return Policy{Name: p.Name, Doc: p.Doc, Peer: true, Fitted: p.Fitted, Scrape: p.Scrape, make: func(w *world, _ Column) ([]policy.Router, error) {
		routers := maker(policy.Config{
			Workers: w.sc.Fleet.Workers, Replicas: w.sc.Replicas, BlockTokens: w.sc.BlockTokens, Seed: w.seed,
			IndexDown: func(clock.Instant) bool { return w.indexDown },
		})
		if len(routers) != w.sc.Replicas {
			return nil, fmt.Errorf("policy %s made %d replicas instead of %d", p.Name, len(routers), w.sc.Replicas)
		}
		return routers, nil
	}}
}

// shipped returns the real router as a configuration makes it.
func shipped(name, doc string, cfg route.Config) Policy {
	prices := cfg.Policy == route.Rhizome || cfg.Policy == route.ArticleCost
	return Policy{Name: name, Doc: doc, Prices: prices, make: func(w *world, column Column) ([]policy.Router, error) {
		class := func(int) cost.Class { return cost.Generic() }
		switch column {
		case Oracle:
			class = w.trueClass
		case Misspecified:
			class = w.wrongClass
		}
		configOf := func(i int) productConfig {
			cfg := cfg
			cfg.Fixed, cfg.Seed = column != Learned, draw(w.seed, "router", uint64(i))
			return productConfig{Config: cfg, Class: class, Clock: &w.clock}
		}
		if w.sc.Replicas == 1 {
			r, err := newProduct(w.sc, configOf(0))
			if err != nil {
				return nil, err
			}
			r.terms = w.terms
			return []policy.Router{r}, nil
		}
		all, err := newReplicated(w.sc, configOf)
		if err != nil {
			return nil, err
		}
		var routers []policy.Router
		for _, r := range all {
			r.terms = w.terms
			routers = append(routers, r)
		}
		return routers, nil
	}}
}

// ParsePolicies returns the policies of a comma-separated list of names, those
// of [Ablations] among them; empty means all of [Policies].
func ParsePolicies(names string) ([]Policy, error) {
	all := Policies()
	if names == "" {
		return all, nil
	}
	shown := len(all)
	all = append(all, Ablations()[1:]...)
	var out []Policy
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		i := indexOf(all, name)
		if i < 0 {
			return nil, fmt.Errorf("unknown policy %q: want some of %s", name, strings.Join(namesOf(all[:shown]), ", "))
		}
		if indexOf(out, name) < 0 {
			out = append(out, all[i])
		}
	}
	return out, nil
}

// Priced returns those of the policies that go by the workers' constants.
func Priced(all []Policy) []Policy {
	return slices.DeleteFunc(slices.Clone(all), func(p Policy) bool { return !p.Prices })
}

func indexOf(all []Policy, name string) int {
	for i := range all {
		if all[i].Name == name {
			return i
		}
	}
	return -1
}

func namesOf(all []Policy) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}
