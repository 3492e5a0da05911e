//go:build linux

package real

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// Ground plays scenarios with real processes.
type Ground struct {
	// Binary is a lab build of rhizome: `make chaos-build` makes one.
	Binary string
	// Logs is a directory that each run's logs are copied to; "" keeps none.
	Logs string
	// Log hears what goes on; nil for nothing.
	Log *slog.Logger

	tried sync.Once
	ready error         // what trying it out came to
	runs  atomic.Uint64 // so far
}

// Place implements [chaos.Ground].
func (*Ground) Place() chaos.Place { return chaos.Real }

// Ready implements [chaos.Ground]: it says all that is missing, having looked
// once. It first sweeps away what dead runs left.
func (g *Ground) Ready() error {
	g.tried.Do(func() {
		if err := g.missing(); err != nil {
			g.ready = fmt.Errorf("the real ground can't be used here: %w", err)
		}
	})
	return g.ready
}

func (g *Ground) missing() error {
	var errs []error
	missing := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if os.Geteuid() != 0 {
		missing("not root: making namespaces needs it")
	}
	for _, tool := range []struct{ name, from string }{{"ip", "iproute2"}, {"tc", "iproute2"}, {"nft", "nftables"}, {"mount", "util-linux"}} {
		if _, err := exec.LookPath(tool.name); err != nil {
			missing("%s is not installed: it is in the package %s", tool.name, tool.from)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		missing("no TUN devices: %w", err)
	}
	if g.Binary == "" {
		missing("no lab build of rhizome is named: make chaos-build makes bin/rhizome-chaos")
	} else if out, err := exec.Command(g.Binary, "version").Output(); err != nil {
		missing("%s can't be run: %w", g.Binary, err)
	} else if !strings.Contains(string(out), "lab build") {
		missing("%s is no lab build, so it takes no wrong time: make chaos-build makes one", g.Binary)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	n, err := Sweep()
	if err != nil {
		return fmt.Errorf("sweep away what earlier runs left: %w", err)
	}
	if n > 0 && g.Log != nil {
		g.Log.Info("swept away what earlier runs left", "things", n)
	}
	return tryOut(g.runs.Add(1))
}

// tryOut makes all kinds of things that a run needs of the kernel, once.
func tryOut(run uint64) error {
	o, err := self(run)
	if err != nil {
		return err
	}
	n, err := newNetwork(o, 1, 1)
	if err != nil {
		return err
	}
	s, err := newSwitch(n.replicas, 1)
	if err == nil {
		err = s.close()
	}
	return errors.Join(err, n.narrow(0, 1e6), n.close())
}

// Run implements [chaos.Ground]. Several may go on at once.
func (g *Ground) Run(ctx context.Context, s *chaos.Scenario, seed uint64) (h *chaos.History, err error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Replicas > maxReplicas || s.Workers > maxWorkers {
		return nil, fmt.Errorf("scenario %s has %d replicas and %d workers; the real ground takes %d and %d", s.Name, s.Replicas, s.Workers, maxReplicas, maxWorkers)
	}
	log := g.Log
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if err := g.Ready(); err != nil {
		return nil, err
	}
	o, err := self(g.runs.Add(1))
	if err != nil {
		return nil, err
	}
	c, err := newCluster(o, g.Binary, s, seed)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	defer func() {
		if g.Logs != "" {
			err = errors.Join(err, keepLogs(c.dir, filepath.Join(g.Logs, s.Name)))
		}
		err = errors.Join(err, c.close())
	}()
	if err := c.awaitMesh(ctx); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return play(ctx, c, s, seed, log)
}

// maxWorkers bounds the workers, which share a namespace.
const maxWorkers = 200

// play runs the work, the faults and the watch beside each other.
func play(ctx context.Context, c *cluster, s *chaos.Scenario, seed uint64, log *slog.Logger) (*chaos.History, error) {
	w, err := newWork(c, s, seed)
	if err != nil {
		return nil, err
	}
	d := &director{c: c, s: s, flapped: make(map[*chaos.Fault]bool)}
	steps, err := d.plan()
	if err != nil {
		return nil, err
	}
	c.begun()
	v := newWatch(c)
	d.v = v
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	sending, stopSending := context.WithCancel(ctx)
	defer stopSending()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var faults, working, watched sync.WaitGroup
	watched.Go(func() { v.run(watching) })
	var stalled time.Duration
	watched.Go(func() { stalled = longestStall(watching, c.clock) })
	working.Go(func() { w.run(ctx, sending) })
	faults.Go(func() {
		if err := d.run(ctx, steps); err != nil {
			giveUp(err)
		}
	})
	_ = c.clock.Sleep(ctx, s.Duration) // its end is seen below
	stopSending()
	working.Wait()
	faults.Wait()
	_ = c.clock.Sleep(ctx, max(s.Duration, s.Last())+s.Settle-c.now())
	stopWatching()
	watched.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	truths, err := c.truths(ctx)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	w.tell(log)
	h := &chaos.History{
		Scenario: s.Name, Place: chaos.Real, Seed: seed, Faults: d.happening, Requests: w.requests, Samples: v.samples,
		Replicas: c.replicaLives(), Workers: c.workerLives(), Truths: truths, Leases: v.leases.ops, End: c.now(), Stalled: max(stalled, d.late),
	}
	slices.SortFunc(h.Requests, func(a, b chaos.Request) int { return cmp.Compare(a.At, b.At) })
	return h, nil
}

// tell logs what clients whose requests failed were told.
func (w *work) tell(log *slog.Logger) {
	for what, n := range w.said { // order-free: a log of counts
		log.Debug("requests failed", "count", n, "how", what)
	}
}

// keepLogs copies what processes wrote.
func keepLogs(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	logs, _ := filepath.Glob(filepath.Join(from, "*", "log")) // the patterns are well-formed
	more, _ := filepath.Glob(filepath.Join(from, "*.log"))
	for _, name := range append(logs, more...) {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		base := filepath.Base(name)
		if base == "log" {
			base = filepath.Base(filepath.Dir(name)) + ".log"
		}
		if err := os.WriteFile(filepath.Join(to, base), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
