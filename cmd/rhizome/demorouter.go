package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/config"
	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/route"
)

// maxDemoReplicas bounds --replicas: they share this process.
const maxDemoReplicas = 16

// demoRouter is the router of a demo: one replica, or several in a mesh.
type demoRouter struct {
	replicas []*replica
	stop     context.CancelFunc
	ended    sync.WaitGroup
	mu       sync.Mutex
	errs     []error // of those that ended
}

// startRouter returns what the demo calls to get its router: the product's
// own, wired as serve wires it. Several replicas find each other on loopback.
func (c *demoCommand) startRouter(sh *shell) func(context.Context, []string) (*load.Router, error) {
	return func(ctx context.Context, lines []string) (*load.Router, error) {
		ctx, stop := context.WithCancel(ctx)
		d := &demoRouter{stop: stop}
		secret := rand.Text() + rand.Text()
		for i := range max(1, c.Replicas) {
			if err := d.start(ctx, sh, c.flags(lines, i, secret, d.replicas)); err != nil {
				return nil, errors.Join(err, d.close())
			}
		}
		if err := d.await(ctx); err != nil {
			return nil, errors.Join(err, d.close())
		}
		first := d.replicas[0]
		router := &load.Router{URL: first.url(), Admin: "http://" + first.admin.Addr().String(), Close: d.close, Stats: d.stats}
		for _, r := range d.replicas {
			router.Replicas = append(router.Replicas, r.url())
		}
		return router, nil
	}
}

func (r *replica) url() string { return "http://" + r.data.Addr().String() }

// flags are the settings of replica i, which finds the others at those before it.
func (c *demoCommand) flags(workers []string, i int, secret string, before []*replica) []config.Flag {
	listen, admin, dir := c.Listen, c.Admin, c.StateDir
	if i > 0 {
		listen, admin = "127.0.0.1:0", "127.0.0.1:0"
		if dir != "" {
			dir = filepath.Join(dir, fmt.Sprintf("replica-%d", i))
		}
	}
	set := func(name, path string, values ...string) config.Flag {
		return config.Flag{Name: name, Path: path, Values: values}
	}
	flags := []config.Flag{
		set("--worker", "workers", workers...), set("--policy", "route.policy", c.Policy),
		set("--listen", "gateway.listen", listen), set("--admin", "gateway.admin.listen", admin),
		set("demo", "name", "demo"), set("demo", "grace", "5s"), set("demo", "seed", strconv.Itoa(i+1)),
	}
	if dir != "" {
		flags = append(flags, set("--state-dir", "state.dir", dir))
	}
	if c.Replicas > 1 {
		flags = append(flags, set("--replicas", "mesh.listen", "127.0.0.1:0"), set("--replicas", "mesh.secrets", secret))
		var peers []string
		for _, r := range before {
			peers = append(peers, r.endpoint.Self().Addr.String())
		}
		if i > 0 {
			flags = append(flags, set("--replicas", "mesh.peers", peers...))
		}
	}
	return flags
}

// start has one more replica run.
func (d *demoRouter) start(ctx context.Context, sh *shell, flags []config.Flag) error {
	loaded, err := config.Source{Flags: flags}.Load()
	if err != nil {
		return err
	}
	r, err := newReplica(loaded, sh)
	if err != nil {
		return err
	}
	d.replicas = append(d.replicas, r)
	d.ended.Go(func() {
		if err := r.run(ctx); err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.errs = append(d.errs, err)
		}
	})
	return nil
}

// await waits until all replicas are ready and connected to each other.
func (d *demoRouter) await(ctx context.Context) error {
	for _, r := range d.replicas {
		err := r.await(ctx, func() error {
			if err := r.ready(); err != nil {
				return err
			}
			up := 0
			for _, m := range r.node.State().Members {
				if m.Up {
					up++
				}
			}
			if up < len(d.replicas)-1 {
				return fmt.Errorf("connected to %d of %d other replicas", up, len(d.replicas)-1)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends all replicas.
func (d *demoRouter) close() error {
	d.stop()
	d.ended.Wait()
	return errors.Join(d.errs...)
}

// stats sums up what the replicas counted.
func (d *demoRouter) stats() (sum load.RouterStats) {
	for _, r := range d.replicas {
		s := r.router.Stats()
		sum.Requests += int64(s.Requests)
		sum.Failed += int64(s.Ended[route.Failed])
		sum.CachedPredicted += int64(s.CachedPredicted)
		sum.CachedActual += int64(s.CachedActual)
		sum.CachedAbsError += int64(s.CachedAbsError)
	}
	return sum
}

// await waits until is returns nil, and says what it returned if it never does.
func (r *replica) await(ctx context.Context, is func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := is()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
