//go:build linux

package real

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// The ports of a replica, in a namespace of its own.
const (
	dataPort = 8080
	adminAt  = "127.0.0.1:8081"
	meshPort = 7400
	// drainDelay is what the balancer needs to notice that a replica ends.
	drainDelay = 2 * time.Second
	grace      = 5 * time.Second
	stateSize  = "8m" // of the small disk of a replica whose disk gets full
)

// replica is one place of the mesh, which has one process after another.
type replica struct {
	n       int
	name    string
	in      *namespace
	dir     string
	variant variant

	mu    sync.Mutex
	life  int
	proc  *process // nil while it is down
	lives []span   // when it was up, and able to answer
	next  bool     // it speaks the wire's next minor version
}

// variant is what a scenario needs besides the usual.
type variant struct {
	tunnel bool // the mesh runs over the switch
	disk   bool // replicas keep their state, on a small disk
	keep   bool // they keep it from one life to the next
	files  bool // certificates come from files
}

func variantOf(s *chaos.Scenario) (v variant) {
	for i := range s.Faults {
		switch s.Faults[i].Kind {
		case chaos.Loss, chaos.Delay, chaos.Duplicate, chaos.Reorder, chaos.LowMTU:
			v.tunnel = true
		case chaos.DiskFull, chaos.DiskSlow:
			v.disk = true
		case chaos.Crash:
			v.keep = v.keep || s.Faults[i].Keep
		case chaos.Expiry, chaos.Expired:
			v.files = true
		}
	}
	return v
}

// span is a time during which something was up; until is 0 while it is.
type span struct{ from, until time.Duration }

func (r *replica) address() string { return replicaAddress(r.n, r.life) }

// url is where clients reach it.
func (r *replica) url() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("http://%s:%d", r.address(), dataPort)
}

func (r *replica) meshAddress() string {
	if r.variant.tunnel {
		return tunnelAddress(r.n, r.life)
	}
	return r.address()
}

// current returns the process that runs, nil for none.
func (r *replica) current() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc
}

// troubled reports whether it was down or stood still at some time from one
// moment to another.
func (r *replica) troubled(from, until time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return troubled(r.lives, from, until)
}

// troubled reports whether no span holds all of a time.
func troubled(spans []span, from, until time.Duration) bool {
	for _, s := range spans {
		if s.from <= from && (s.until == 0 || s.until > until) {
			return false
		}
	}
	return true
}

func (r *replica) clockFile() string { return filepath.Join(r.dir, "clock") }
func (r *replica) slowFile() string  { return filepath.Join(r.dir, "slow-disk") }

// config is the settings of the present life, as YAML.
func (r *replica) config(c *cluster) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\ngrace: %v\nseed: %d\n", r.name, grace, c.seed+uint64(r.n)+1)
	fmt.Fprintf(&b, "gateway:\n  listen: %s:%d\n  drain_delay: %v\n  trust_hints: true\n  admin:\n    listen: %s\n", r.address(), dataPort, drainDelay, adminAt)
	fmt.Fprintf(&b, "mesh:\n  listen: %s:%d\n  cluster: %s\n  peers: [\"%s:%d\"]\n", r.meshAddress(), meshPort, clusterName, replicasName, meshPort)
	if r.variant.files {
		fmt.Fprintf(&b, "  tls:\n    ca: %s\n    cert: %s\n    key: %s\n", filepath.Join(r.dir, "ca.pem"), filepath.Join(r.dir, "cert.pem"), filepath.Join(r.dir, "key.pem"))
	} else {
		fmt.Fprintf(&b, "  secrets: [\"file:%s\"]\n", filepath.Join(c.dir, "secret"))
	}
	fmt.Fprintf(&b, "leases:\n  ttl: %v\n", chaos.LeaseTTL)
	if r.variant.disk || r.variant.keep {
		fmt.Fprintf(&b, "state:\n  dir: %s\n", r.stateDir())
	}
	b.WriteString("workers:\n")
	for _, w := range c.workers {
		fmt.Fprintf(&b, "  - \"%s\"\n", w.spec())
	}
	return b.String()
}

func (r *replica) stateDir() string { return filepath.Join(r.dir, "state") }

const clusterName = "chaos"

// begin starts the next life of a replica: a new boot at a new address, with
// nothing on its disk but where what was saved is kept.
func (c *cluster) begin(r *replica) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc != nil {
		return fmt.Errorf("replica %d runs already", r.n)
	}
	if len(r.lives) > 0 {
		r.life++
	}
	if err := c.net.move(r.n, r.life, r.variant.tunnel); err != nil {
		return err
	}
	name := filepath.Join(r.dir, "rhizome.yaml")
	if err := os.WriteFile(name, []byte(r.config(c)), 0o600); err != nil {
		return err
	}
	args := []string{c.binary, "serve", "--config", name}
	if r.variant.keep {
		if err := os.MkdirAll(r.stateDir(), 0o700); err != nil {
			return err
		}
	}
	if r.variant.disk {
		// The mount is of the child's own namespace of mounts, and goes with it.
		if err := os.MkdirAll(r.stateDir(), 0o700); err != nil {
			return err
		}
		args = append([]string{"sh", "-c", `mount -t tmpfs -o size=` + stateSize + ` tmpfs "$0" && exec "$@"`, r.stateDir()}, args...)
	}
	env := []string{"RHIZOME_TEST_CLOCK=" + r.clockFile(), "RHIZOME_TEST_SLOW_DISK=" + r.slowFile()}
	if r.next {
		env = append(env, "RHIZOME_TEST_NEXT_MINOR=1")
	}
	p, err := c.starter.start(r.in, filepath.Join(r.dir, "log"), env, args...)
	if err != nil {
		return err
	}
	r.proc = p
	r.lives = append(r.lives, span{from: c.now()})
	return nil
}

// end takes a replica down: at once, or in order.
func (c *cluster) end(r *replica, atOnce bool) error {
	r.mu.Lock()
	p := r.proc
	r.proc = nil
	c.down(r)
	r.mu.Unlock()
	if p == nil {
		return fmt.Errorf("replica %d does not run", r.n)
	}
	if atOnce {
		p.kill()
		return nil
	}
	return p.stop(drainDelay + grace + 10*time.Second)
}

// down notes that a replica answers nothing from now on; its lock is held.
func (c *cluster) down(r *replica) {
	if n := len(r.lives); n > 0 && r.lives[n-1].until == 0 {
		r.lives[n-1].until = c.now()
	}
}

// replicaLives are all lives of all replicas, as a history has them.
func (c *cluster) replicaLives() (all []chaos.ReplicaLife) {
	for _, r := range c.replicas {
		r.mu.Lock()
		for _, s := range r.lives {
			all = append(all, chaos.ReplicaLife{Replica: r.n, From: s.from, Until: s.until})
		}
		r.mu.Unlock()
	}
	return all
}

// pause has a replica stand still, or go on.
func (c *cluster) pause(r *replica, still bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return fmt.Errorf("replica %d does not run", r.n)
	}
	if still {
		c.down(r)
	} else {
		r.lives = append(r.lives, span{from: c.now()})
	}
	return r.proc.pause(still)
}

// fill takes all room that is left on a replica's disk, or gives it back.
func (r *replica) fill(full bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return fmt.Errorf("replica %d does not run", r.n)
	}
	name := fmt.Sprintf("/proc/%d/root%s", r.proc.pid(), filepath.Join(r.stateDir(), "filler"))
	if !full {
		return os.Remove(name)
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("fill the disk of replica %d: %w", r.n, err)
	}
	chunk := make([]byte, 64<<10)
	for written := 0; written < 1<<30; written += len(chunk) {
		if _, err = f.Write(chunk); err != nil {
			break
		}
	}
	if closed := f.Close(); err == nil { // no room is what was wanted
		return errors.Join(errors.New("the small disk takes a GiB"), closed)
	}
	return nil
}
