package lease

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Config says how leases are kept. The zero value of each field means its
// default.
type Config struct {
	// TTL is how long a workflow that sends nothing keeps its worker. Default
	// 2 min.
	TTL time.Duration `yaml:"ttl"`
	// MaxLeases bounds the workflows that have one, in a data centre; past it the
	// one that was idle longest loses its. Default 200,000.
	MaxLeases int `yaml:"max_leases"`
	// NewPerSecond bounds how many workflows of one API key get a lease in a
	// second. Default 1000.
	NewPerSecond int `yaml:"new_per_second"`
	// Heartbeat is how long a voter hears nothing from the leader before it
	// stands for election. Default 300 ms.
	Heartbeat time.Duration `yaml:"heartbeat"`
}

// WithDefaults returns c with every zero value replaced by its default.
func (c Config) WithDefaults() Config {
	c.TTL = cmp.Or(c.TTL, 2*time.Minute)
	c.MaxLeases = cmp.Or(c.MaxLeases, 200_000)
	c.NewPerSecond = cmp.Or(c.NewPerSecond, 1000)
	c.Heartbeat = cmp.Or(c.Heartbeat, 300*time.Millisecond)
	return c
}

// Validate says what in c, after WithDefaults, can't work; each problem begins
// with its key.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.TTL < time.Second || c.TTL > time.Hour {
		bad("ttl is %v: want 1s to 1h", c.TTL)
	}
	if c.MaxLeases < 1 || c.MaxLeases > maxLeases {
		bad("max_leases is %d: want 1 to %d", c.MaxLeases, maxLeases)
	}
	if c.NewPerSecond < 1 {
		bad("new_per_second is %d: want 1 or more", c.NewPerSecond)
	}
	if c.Heartbeat < 50*time.Millisecond || c.Heartbeat > 10*time.Second {
		bad("heartbeat is %v: want 50ms to 10s", c.Heartbeat)
	}
	return errors.Join(errs...)
}
