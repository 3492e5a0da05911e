package route

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rhizome-router/rhizome/cost"
)

// Config chooses how requests are placed.
type Config struct {
	// Policy is the rule by which workers are chosen: rhizome, article,
	// round-robin, least-requests, random or sticky.
	Policy Policy `yaml:"policy"`
	// Weights are the exchange rates of the policy rhizome, 0 or more. Nobody
	// should need to change them; an experiment may.
	Weights cost.Weights `yaml:"weights"`
	// NearTie makes the band within which costs count as equal, each margin 0 or
	// more.
	NearTie Margins `yaml:"near_tie"`
	// TemperatureMicros, T, makes the policies rhizome and article draw workers
	// with probabilities in proportion to e^(−(cost − least)/T), up to 1e9; 0:
	// the cheapest. A draw spreads what a wrong model would pile up, and costs
	// about T a request.
	TemperatureMicros float64 `yaml:"temperature_micros" config:"zero"`
	// Article holds the parameters of the policy article, 0 or more.
	Article cost.Article `yaml:"article"`
	// SlowStart is how long it takes until a worker that just appeared, or came
	// back from being out, gets as much as those beside it, up to 1 h; 0: at
	// once. Until then what its load costs counts up to 10 times. Default 30 s.
	SlowStart time.Duration `yaml:"slow_start"`
	// Explained is how many decisions can be explained afterwards, 1 to 1
	// million; each takes 7 kB at most. Default 4096.
	Explained int `yaml:"explained" config:"fixed"`
	// TierGate trusts hits on a lower tier less while its link is congested
	// (AIMD on its utilisation, see cost.Gate). Off by default.
	TierGate bool `yaml:"tier_gate"`
	// Omit leaves terms out of the choice, which a laboratory does to see what
	// each is worth.
	Omit cost.Omit `yaml:"-"`
	// Queue says when requests wait in the router for a worker, rather than in a
	// worker's own queue: while every worker of a model is saturated.
	Queue QueueConfig `yaml:"queue"`
	// Seed is that of all random choices.
	Seed uint64 `yaml:"-"`
	// Fixed keeps the workers' constants as they were given: nothing is
	// learned of them.
	Fixed bool `yaml:"-"`
	// Fits is what an earlier process learned: see Router.FitStates.
	Fits map[ClassKey]cost.FitState `yaml:"-"`
}

// DefaultConfig is what the product ships with.
func DefaultConfig() Config {
	queue := DefaultQueue()
	queue.Enabled = false
	return Config{Policy: Rhizome, Weights: cost.DefaultWeights(), NearTie: DefaultMargins(), Article: cost.DefaultArticle(), SlowStart: 30 * time.Second, Explained: defaultExplained, Queue: queue}
}

const (
	defaultExplained = 4096
	maxExplained     = 1_000_000
	maxSlowStart     = time.Hour

	maxTemperatureMicros = 1e9
)

// Validate says what in c can't work; each problem begins with its key.
func (c *Config) Validate() error {
	var errs []error
	if _, err := ParsePolicy(string(c.Policy)); err != nil {
		errs = append(errs, fmt.Errorf("policy: %w", err))
	}
	w, a := &c.Weights, &c.Article
	for _, f := range []struct {
		key string
		is  float64
	}{
		{"weights.own_decode", w.OwnDecode}, {"weights.prefill_externality", w.PrefillExternality},
		{"weights.kv_externality", w.KVExternality}, {"weights.queue_externality", w.QueueExternality},
		{"weights.eviction", w.Eviction}, {"weights.head_of_line_micros", w.HeadOfLineMicros}, {"weights.head_of_line_slack", w.HeadOfLineSlack},
		{"near_tie.steps", c.NearTie.Steps}, {"near_tie.share", c.NearTie.Share}, {"near_tie.peers", c.NearTie.Peers},
		{"temperature_micros", c.TemperatureMicros},
		{"article.prefill_micros", a.PrefillMicros}, {"article.decode_micros", a.DecodeMicros},
		{"article.decode_square_micros", a.DecodeSquareMicros}, {"article.tier_weight", a.TierWeight},
		{"article.head_of_line_micros", a.HeadOfLineMicros}, {"article.queue_slack", a.QueueSlack},
		{"article.affinity_micros", a.AffinityMicros}, {"article.affinity_per_second", a.AffinityPerSecond},
		{"article.expected_micros", a.ExpectedMicros}, {"article.kv_bytes", a.KVBytes},
	} {
		if !(f.is >= 0) || math.IsInf(f.is, 0) {
			errs = append(errs, fmt.Errorf("%s is %v: want a number of 0 or more", f.key, f.is))
		}
	}
	if !(a.BytesPerMicro > 0) || math.IsInf(a.BytesPerMicro, 0) {
		errs = append(errs, fmt.Errorf("article.bytes_per_micro is %v: want a number above 0", a.BytesPerMicro))
	}
	if c.TemperatureMicros > maxTemperatureMicros {
		errs = append(errs, fmt.Errorf("temperature_micros is %v: want at most %v", c.TemperatureMicros, maxTemperatureMicros))
	}
	if c.SlowStart < 0 || c.SlowStart > maxSlowStart {
		errs = append(errs, fmt.Errorf("slow_start is %v: want 0 to %v", c.SlowStart, maxSlowStart))
	}
	if c.Explained < 1 || c.Explained > maxExplained {
		errs = append(errs, fmt.Errorf("explained is %d: want 1 to %d", c.Explained, maxExplained))
	}
	errs = append(errs, c.Queue.validate())
	return errors.Join(errs...)
}
