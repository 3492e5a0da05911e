package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"github.com/rhizome-router/rhizome/crdt"
	"time"

	"github.com/rhizome-router/rhizome/engine"
)

// Config says how often the fleet looks at its workers. The zero value takes
// the defaults.
type Config struct {
	// Cluster is part of every worker's global id: equal names in two clusters
	// are two workers. Default "default".
	Cluster string `yaml:"cluster"`
	// ScrapeInterval is the time between two looks at a worker's metrics, 10 ms
	// or more. Default 1 s.
	ScrapeInterval time.Duration `yaml:"scrape_interval"`
	// ProbeInterval is the time between two questions for a worker's models,
	// while it answers, 10 ms or more. Default 2 s.
	ProbeInterval time.Duration `yaml:"probe_interval"`
	// RetryInterval is the same while it doesn't. Default 500 ms.
	RetryInterval time.Duration `yaml:"retry_interval"`
	// ResolveInterval is the time between two looks at where the name of a
	// worker leads, 10 ms or more. One that has led to another address for two
	// looks is another worker: it starts anew. Default 5 s.
	ResolveInterval time.Duration `yaml:"resolve_interval"`
	// ProbeTimeout bounds one question, 10 ms or more. Default 2 s.
	ProbeTimeout time.Duration `yaml:"probe_timeout"`
	// MaxLogBytes bounds the logs of all workers' KV events together.
	// Default 2 GiB, some 50 million blocks.
	MaxLogBytes int64 `yaml:"max_log_bytes"`
	// WarmUp bounds how long a replica waits, from its start, for workers' KV
	// events before it says that it is ready: one that hangs must not hold up
	// all. Default 30 s.
	WarmUp time.Duration `yaml:"warm_up"`
	// Guard says which hosts may be workers; default: any but link-local ones.
	Guard engine.Guard `yaml:"guard,omitempty"`
}

// WithDefaults returns c with every zero value replaced by its default.
func (c Config) WithDefaults() Config {
	c.Cluster = cmp.Or(c.Cluster, "default")
	c.ScrapeInterval = cmp.Or(c.ScrapeInterval, time.Second)
	c.ProbeInterval = cmp.Or(c.ProbeInterval, 2*time.Second)
	c.RetryInterval = cmp.Or(c.RetryInterval, 500*time.Millisecond)
	c.ResolveInterval = cmp.Or(c.ResolveInterval, 5*time.Second)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 2*time.Second)
	c.MaxLogBytes = cmp.Or(c.MaxLogBytes, 2<<30)
	c.WarmUp = cmp.Or(c.WarmUp, 30*time.Second)
	return c
}

// minInterval is the least time between two looks: more would be a load.
const minInterval = 10 * time.Millisecond

// Validate says what in c, after WithDefaults, can't work; each problem begins
// with its key.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	for _, d := range []struct {
		key string
		is  time.Duration
	}{
		{"scrape_interval", c.ScrapeInterval}, {"probe_interval", c.ProbeInterval},
		{"retry_interval", c.RetryInterval}, {"probe_timeout", c.ProbeTimeout},
		{"resolve_interval", c.ResolveInterval},
	} {
		if d.is < minInterval {
			errs = append(errs, fmt.Errorf("%s is %v: want %v or more", d.key, d.is, minInterval))
		}
	}
	if c.MaxLogBytes < 0 {
		errs = append(errs, fmt.Errorf("max_log_bytes is %d: want a number of bytes above 0", c.MaxLogBytes))
	}
	if c.WarmUp < 0 {
		errs = append(errs, fmt.Errorf("warm_up is %v: want 0 (the default) or more", c.WarmUp))
	}
	if err := c.Guard.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("guard.%w", err))
	}
	return errors.Join(errs...)
}

// StreamLog bounds the logs of the workers' KV events.
func (c *Config) StreamLog() crdt.LogConfig { return crdt.LogConfig{MaxBaseBytes: c.MaxLogBytes} }
