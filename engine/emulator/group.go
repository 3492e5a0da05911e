package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/rhizome-router/rhizome/clock"
)

// The port plan of a group: worker i serves HTTP on BasePort+i, KV events on
// EventsBase+2i and their replay on EventsBase+2i+1.
const (
	DefaultBasePort   = 18000
	DefaultEventsBase = 19000
	maxWorkers        = 500 // what fits between the two
)

// GroupConfig describes several workers of one kind.
type GroupConfig struct {
	Config // of each; Name, Addr, EventsAddr and ReplayAddr are set by the group

	Workers    int    // default 1
	Host       string // to listen on; default 127.0.0.1
	BasePort   int    // default DefaultBasePort
	EventsBase int    // default DefaultEventsBase
	AnyPorts   bool   // take free ports instead of the plan's
}

// Group is several workers that share one clock.
type Group struct {
	workers []*Worker
}

// StartGroup starts the workers, named w0, w1, …, with seeds Seed, Seed+1, ….
// They serve until ctx ends or Close is called; Close must be called in any
// case. On an error none is left running.
func StartGroup(ctx context.Context, cfg GroupConfig) (*Group, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 1
	}
	if cfg.Workers < 0 || cfg.Workers > maxWorkers {
		return nil, fmt.Errorf("emulate %d workers: give 1 to %d", cfg.Workers, maxWorkers)
	}
	orString(&cfg.Host, "127.0.0.1")
	if cfg.BasePort == 0 {
		cfg.BasePort = DefaultBasePort
	}
	if cfg.EventsBase == 0 {
		cfg.EventsBase = DefaultEventsBase
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	g := new(Group)
	for i := range cfg.Workers {
		c := cfg.Config
		c.Name = "w" + strconv.Itoa(i)
		c.Seed += uint64(i)
		c.Addr, c.EventsAddr, c.ReplayAddr = cfg.addr(cfg.BasePort+i), cfg.addr(cfg.EventsBase+2*i), cfg.addr(cfg.EventsBase+2*i+1)
		w, err := Start(ctx, c)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.workers = append(g.workers, w)
	}
	return g, nil
}

func (c *GroupConfig) addr(port int) string {
	if c.AnyPorts {
		port = 0
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(port))
}

// Workers returns the workers in order. The slice is the group's own.
func (g *Group) Workers() []*Worker { return g.workers }

// Specs returns each worker as the router's --worker flag takes it.
func (g *Group) Specs() []string {
	var specs []string
	for _, w := range g.workers {
		specs = append(specs, w.Spec())
	}
	return specs
}

// Stats returns the state of each worker.
func (g *Group) Stats() []Stats {
	var all []Stats
	for _, w := range g.workers {
		all = append(all, w.Stats())
	}
	return all
}

// Close closes every worker and waits for them.
func (g *Group) Close() error {
	var errs []error
	for _, w := range g.workers {
		errs = append(errs, w.Close())
	}
	return errors.Join(errs...)
}
