//go:build linux

package real

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/clock"
)

// cluster is all that runs during one play: namespaces, replicas, workers.
type cluster struct {
	binary string
	dir    string
	seed   uint64
	clock  clock.Clock
	zero   atomic.Int64 // when the play began, by the clock

	net      *network
	tunnels  *tunSwitch // nil where the mesh runs without
	starter  *starter
	replicas []*replica
	workers  []*worker
	papers   *papers // nil where certificates are the replicas' own
}

// newCluster makes the namespaces and starts what a scenario plays with.
func newCluster(o owner, binary string, s *chaos.Scenario, seed uint64) (c *cluster, err error) {
	c = &cluster{binary: binary, seed: seed, clock: clock.Real(), starter: newStarter(), dir: filepath.Join(os.TempDir(), o.name("run"))}
	if err := c.build(o, s); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) build(o owner, s *chaos.Scenario) (err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	if err := os.WriteFile(filepath.Join(c.dir, "secret"), []byte(base64.StdEncoding.EncodeToString(secret)), 0o600); err != nil {
		return err
	}
	if c.net, err = newNetwork(o, s.Replicas, s.Workers); err != nil {
		return err
	}
	v := variantOf(s)
	if v.tunnel {
		if c.tunnels, err = newSwitch(c.net.replicas, c.seed); err != nil {
			return err
		}
	}
	for i := range s.Workers {
		w := &worker{n: i, loss: eventLoss(s)}
		c.workers = append(c.workers, w)
		if err := c.start(w); err != nil {
			return err
		}
	}
	for i, in := range c.net.replicas {
		r := &replica{n: i, name: fmt.Sprintf("r%d", i), in: in, dir: filepath.Join(c.dir, fmt.Sprintf("r%d", i)), variant: v}
		c.replicas = append(c.replicas, r)
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return err
		}
	}
	if v.files {
		if c.papers, err = newPapers(); err != nil {
			return err
		}
		if err := c.papers.write(c.replicas); err != nil {
			return err
		}
	}
	if err := c.tellNames(nil); err != nil {
		return err
	}
	for _, r := range c.replicas {
		if err := c.begin(r); err != nil {
			return err
		}
	}
	return nil
}

// eventLoss is the share of events that a scenario has engines lose.
func eventLoss(s *chaos.Scenario) (share float64) {
	for i := range s.Faults {
		if s.Faults[i].Kind == chaos.EventLoss {
			share = max(share, s.Faults[i].Amount)
		}
	}
	return share
}

// now is how long the play has gone on.
func (c *cluster) now() time.Duration {
	return time.Duration(c.clock.Now()) - time.Duration(c.zero.Load())
}

// begun sets the zero of the play's times: what is up was up then.
func (c *cluster) begun() {
	c.zero.Store(int64(c.clock.Now()))
	for _, r := range c.replicas {
		r.mu.Lock()
		r.lives = []span{{}}
		r.mu.Unlock()
	}
	for _, w := range c.workers {
		w.mu.Lock()
		w.lives = []span{{}}
		w.mu.Unlock()
	}
}

// tellNames has the replicas' name lead to where each of them is, or will be in
// its next life for those named in moving.
func (c *cluster) tellNames(moving []int) error {
	var addresses []string
	for _, r := range c.replicas {
		r.mu.Lock()
		life := r.life
		for _, n := range moving {
			if n == r.n {
				life++
			}
		}
		address := replicaAddress(r.n, life)
		if r.variant.tunnel {
			address = tunnelAddress(r.n, life)
		}
		r.mu.Unlock()
		addresses = append(addresses, address)
	}
	return c.net.name(addresses)
}

// awaitMesh waits until all replicas take requests and are connected to all.
func (c *cluster) awaitMesh(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("replicas and workers were not up, each connected to all, within %v; see %s", startPatience, c.dir))
	defer cancel()
	client := &http.Client{Transport: c.dataTransport(), Timeout: time.Second}
	defer client.CloseIdleConnections()
	for _, r := range c.replicas {
		eyes := newEyes(c, r)
		for {
			state, err := eyes.mesh(ctx)
			up := 0
			for _, m := range state.Members {
				if m.Up {
					up++
				}
			}
			if err == nil && up == len(c.replicas)-1 && ready(ctx, client, r) {
				break
			}
			if c.clock.Sleep(ctx, 100*time.Millisecond) != nil {
				eyes.close()
				return fmt.Errorf("replica %d has %d of %d peers (%v): %w", r.n, up, len(c.replicas)-1, err, context.Cause(ctx))
			}
			if p := r.current(); !p.running() {
				eyes.close()
				return fmt.Errorf("replica %d has ended; it said: %s", r.n, tail(p.log))
			}
		}
		eyes.close()
	}
	return nil
}

const startPatience = 60 * time.Second

// tail is the end of a file.
func tail(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	const kept = 2000
	return string(text[max(0, len(text)-kept):])
}

// close ends all processes and removes all that the play made.
func (c *cluster) close() error {
	c.starter.close()
	errs := []error{os.RemoveAll(c.dir)}
	if c.tunnels != nil {
		errs = append(errs, c.tunnels.close())
	}
	if c.net != nil {
		errs = append(errs, c.net.close())
	}
	for _, p := range c.processes() {
		p.kill()
	}
	return errors.Join(errs...)
}

func (c *cluster) processes() (all []*process) {
	for _, r := range c.replicas {
		if p := r.current(); p != nil {
			all = append(all, p)
		}
	}
	for _, w := range c.workers {
		w.mu.Lock()
		if w.proc != nil {
			all = append(all, w.proc)
		}
		w.mu.Unlock()
	}
	return all
}
