//go:build linux

package real

import (
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/chaos"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/lease"
)

// watch looks at all replicas again and again.
type watch struct {
	c      *cluster
	eyes   []*eyes
	leases *seenLeases

	mu      sync.Mutex
	samples []chaos.Sample
}

// sampleEvery is the time between two looks.
const sampleEvery = 500 * time.Millisecond

func newWatch(c *cluster) *watch {
	w := &watch{c: c, leases: newSeenLeases()}
	for _, r := range c.replicas {
		w.eyes = append(w.eyes, newEyes(c, r))
	}
	return w
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	defer func() {
		for _, e := range w.eyes {
			e.close()
		}
	}()
	for next := w.c.now(); w.c.clock.Sleep(ctx, next-w.c.now()) == nil; next = max(next+sampleEvery, w.c.now()) {
		w.look(ctx)
	}
}

// leading is who led the agreement on leases when it was last looked, or another.
func (w *watch) leading(otherwise int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.samples[max(0, len(w.samples)-len(w.eyes)):] {
		if x.Live && x.Leader >= 0 {
			return x.Leader
		}
	}
	return otherwise
}

// look takes a sample of each replica, all at once.
func (w *watch) look(ctx context.Context) {
	at := w.c.now()
	round, leaders := make([]chaos.Sample, len(w.c.replicas)), make([]string, len(w.c.replicas))
	var wg sync.WaitGroup
	for i, r := range w.c.replicas {
		wg.Go(func() { round[i], leaders[i] = w.sample(ctx, r, at) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return // answers were broken off
	}
	for i := range round {
		round[i].Leader = slices.IndexFunc(round, func(x chaos.Sample) bool { return x.Live && x.Name == leaders[i] })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, round...)
}

// seen is what a replica says of itself.
type seen struct {
	mesh    mesh.State
	streams []mesh.HeldStream
	workers []fleet.Description
	index   fleet.IndexState
	leases  lease.Description
	metrics map[string]float64
}

func (e *eyes) look(ctx context.Context) (s seen, err error) {
	asks := []func() error{
		func() (err error) { s.mesh, err = e.mesh(ctx); return err },
		func() error { return e.get(ctx, "/mesh/streams", &s.streams) },
		func() error { return e.get(ctx, "/workers", &s.workers) },
		func() error { return e.get(ctx, "/index", &s.index) },
		func() error { return e.get(ctx, "/leases", &s.leases) },
		func() (err error) { s.metrics, err = e.metrics(ctx); return err },
	}
	errs := make([]error, len(asks))
	var wg sync.WaitGroup
	for i, ask := range asks {
		wg.Go(func() { errs[i] = ask() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// sample looks at one replica, and whom it takes for the leader. It counts as
// live where its process ran all the while and answered.
func (w *watch) sample(ctx context.Context, r *replica, at time.Duration) (x chaos.Sample, leader string) {
	x = chaos.Sample{At: at, Replica: r.n}
	before := r.current()
	if before == nil || before.paused() {
		return x, ""
	}
	s, err := w.eyes[r.n].look(ctx)
	if r.current() != before || before.paused() {
		return x, ""
	}
	if err != nil {
		x.Silent = true
		return x, ""
	}
	x.Live = true
	s.fill(&x, w.c)
	w.leases.note(at, x.Name, &s.leases)
	x.Told = told(before.log)
	if s.metrics["rhizome_worker_event_gaps_total"] > 0 {
		x.Told = append(x.Told, string(chaos.EventLoss))
	}
	if s.metrics["rhizome_worker_event_resets_total"] > 0 {
		x.Told = append(x.Told, string(chaos.EventGap))
	}
	if off := time.Since(time.UnixMilli(int64(1000 * s.metrics["rhizome_time_of_day_seconds"]))); off.Abs() > wrongTime {
		x.Told = append(x.Told, string(chaos.ClockJump))
	}
	slices.Sort(x.Told)
	return x, s.leases.Leader
}

// keptMarks is how many of a stream's marks a sample has.
const keptMarks = 8

// fill writes what a replica says into a sample.
func (s *seen) fill(x *chaos.Sample, c *cluster) {
	x.Name = s.mesh.Replica
	x.Members, x.Joined = []string{x.Name}, []string{}
	for _, m := range s.mesh.Members {
		if m.Alive {
			x.Members = append(x.Members, m.Name)
		}
		if m.Up {
			x.Joined = append(x.Joined, m.Name)
		}
	}
	slices.Sort(x.Members)
	x.InFlight = int(s.metrics["rhizome_worker_in_flight_requests"])
	x.Memory, x.Goroutines = int64(s.metrics["process_resident_memory_bytes"]), int(s.metrics["go_goroutines"])
	x.Slots, x.Promises = s.index.Index.OpenSlots, s.index.Index.Promises
	x.Corrupt, x.LostOps = s.mesh.Corruption, s.mesh.LostOps
	x.MissingBytes = int(s.mesh.Streams.LagBatches) * batchBytes
	numbers := make(map[string]int) // by URL, then by what logs call it
	for _, w := range c.workers {
		numbers[w.url()] = w.n
	}
	for _, d := range s.workers {
		if n, ok := numbers[d.Worker]; ok {
			numbers[d.ID] = n
			if d.Healthy {
				x.Healthy = append(x.Healthy, n)
			}
		}
	}
	for _, cache := range s.index.Caches {
		if n, ok := numbers[cache.Worker]; ok && cache.Live {
			x.Following = append(x.Following, n)
		}
	}
	slices.Sort(x.Healthy)
	slices.Sort(x.Following)
	for i := range s.streams {
		if n, ok := numbers[s.streams[i].Worker]; ok && s.streams[i].Current {
			x.Streams = append(x.Streams, streamOf(n, &s.streams[i]))
		}
	}
	slices.SortFunc(x.Streams, func(a, b chaos.Stream) int { return cmp.Compare(a.Worker, b.Worker) })
	x.Leases, x.Applied = number(s.leases.Digest), s.leases.Gen<<generationShift|s.leases.Index
}

const (
	// batchBytes is what a batch of an engine has on the wire, about.
	batchBytes = 512
	// generationShift makes a generation and an index one number that grows with both.
	generationShift = 40
)

func streamOf(worker int, h *mesh.HeldStream) chaos.Stream {
	s := chaos.Stream{Worker: worker, Boot: number(h.Boot), Next: h.Next, Skips: number(h.Skips), Digest: number(h.Digest), Truncated: h.Truncated}
	for _, m := range h.Marks[max(0, len(h.Marks)-keptMarks):] {
		s.Marks = append(s.Marks, chaos.Mark{Next: m.Next, Skips: number(m.Skips), Digest: number(m.Digest)})
	}
	return s
}

// number reads what the admin API writes in hexadecimal digits.
func number(hex string) uint64 {
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return 0 // nothing is told yet
	}
	return n
}

// tells are the lines of a log that tell of a fault.
var tells = []struct {
	fault chaos.FaultKind
	line  string
}{
	{chaos.DiskFull, "no space left on device"},
	{chaos.DiskSlow, `msg="saving the state takes long"`},
}

// wrongTime is how far a replica's time of day may be from this machine's.
const wrongTime = 30 * time.Second

// maxLog is how much of a log is read.
const maxLog = 4 << 20

// told reads which faults a replica's log tells of.
func told(log string) (faults []string) {
	f, err := os.Open(log)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLog))
	if err != nil {
		return nil
	}
	for _, t := range tells {
		if name := string(t.fault); strings.Contains(string(text), t.line) && !slices.Contains(faults, name) {
			faults = append(faults, name)
		}
	}
	slices.Sort(faults)
	return faults
}
