//go:build linux

package real

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// The ports of a worker, at an address of its own.
const (
	workerPort = 18000
	eventsPort = 19000
	replayPort = 19001
)

// worker is one place of the fleet, which has one process after another.
type worker struct {
	n    int
	loss float64 // share of its events' batches that subscribers miss

	mu    sync.Mutex
	proc  *process
	kind  int // which engine runs there; another one has other blocks
	lives []span
}

func (w *worker) url() string { return fmt.Sprintf("http://%s:%d", workerAddress(w.n), workerPort) }

// spec is the worker as a replica is told of it.
func (w *worker) spec() string {
	host := workerAddress(w.n)
	return fmt.Sprintf("%s,events=tcp://%s:%d,replay=tcp://%s:%d", w.url(), host, eventsPort, host, replayPort)
}

// troubled reports whether it was down at some time from one moment to another.
func (w *worker) troubled(from, until time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return troubled(w.lives, from, until)
}

// blockTokens are the sizes of blocks of the engines that take turns at an
// address.
var blockTokens = [...]int{16, 32}

// start starts a worker's next life, with nothing in its caches.
func (c *cluster) start(w *worker) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proc != nil {
		return fmt.Errorf("worker %d runs already", w.n)
	}
	args := []string{c.binary, "emulate", "--workers", "1", "--host", workerAddress(w.n), "--port", strconv.Itoa(workerPort),
		"--model", modelName, "--block-tokens", strconv.Itoa(blockTokens[w.kind%len(blockTokens)])}
	if w.loss > 0 {
		args = append(args, "--event-loss", strconv.FormatFloat(w.loss, 'g', -1, 64))
	}
	p, err := c.starter.start(c.net.workers, filepath.Join(c.dir, fmt.Sprintf("w%d.log", w.n)), nil, args...)
	if err != nil {
		return err
	}
	w.proc = p
	w.lives = append(w.lives, span{from: c.now()})
	return nil
}

const modelName = "chaos"

// kill ends a worker as a crash does.
func (c *cluster) kill(w *worker) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proc == nil {
		return fmt.Errorf("worker %d does not run", w.n)
	}
	w.lives[len(w.lives)-1].until = max(1, c.now())
	w.proc.kill()
	w.proc = nil
	return nil
}

// tell returns what tells a worker's emulator to behave otherwise.
func (c *cluster) tell(how string) func(n int) error {
	return func(n int) error {
		client := &http.Client{Transport: c.dataTransport(), Timeout: tellPatience}
		defer client.CloseIdleConnections()
		a, err := client.Post(c.workers[n].url()+"/emulator/"+how, "", nil)
		if err != nil {
			return fmt.Errorf("worker %d: %w", n, err)
		}
		a.Body.Close()
		if a.StatusCode != http.StatusOK {
			return fmt.Errorf("worker %d, %s: %s", n, how, a.Status)
		}
		return nil
	}
}

// tellPatience is how long a worker may take to answer that.
const tellPatience = 5 * time.Second

// workerLives are all lives of all workers, as a history has them.
func (c *cluster) workerLives() (all []chaos.WorkerLife) {
	for _, w := range c.workers {
		w.mu.Lock()
		for life, s := range w.lives {
			all = append(all, chaos.WorkerLife{Worker: w.n, Boot: uint64(life), From: s.from, Until: s.until})
		}
		w.mu.Unlock()
	}
	return all
}
