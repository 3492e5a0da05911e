package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// benchMesh is a mesh to be measured.
type benchMesh struct {
	whole    int // replicas as they ship; with light ones the first reads all engines
	light    int // receivers that are no members, and keep no index
	held     int // blocks of an engine's cache
	opsPerS  int
	duration time.Duration
	rings    int                 // bytes of each replica's, see Config.MaxRingBytes; 0 means the default
	sample   func(share float64) // called about every second; may be nil
}

// converged is what was measured of one; times are milliseconds.
type converged struct {
	p50, p99, wakeP99 float64
	opsPerS, cpuCores float64
	rssMiB            float64
}

// The engines of a mesh, each with a cache of so many blocks, which store so
// many of them a batch.
const (
	meshEngines = 64
	meshBlocks  = 16
	meshHeld    = 1024
)

// convergence follows batches on their way.
type convergence struct {
	churn    *core.Churn
	zero     time.Time
	replicas int32
	from     uint64       // the first number that is measured, of every engine
	batches  [][]followed // by engine and number
	missing  atomic.Int64 // batches that are published and not everywhere
}

type followed struct {
	at   int64 // nanoseconds since zero
	left atomic.Int32
	took int64 // nanoseconds; of the last replica that it came to
}

// arrivals is one replica's index, and notes what came.
type arrivals struct {
	core.Shown
	run  *convergence
	log  func() *crdt.Log
	next [meshEngines]uint64
}

// Changed is part of Streams.
func (a *arrivals) Changed(id crdt.StreamID, changes []index.Change) {
	a.Shown.Changed(id, changes)
	a.came(id)
}

// Replaced is part of Streams.
func (a *arrivals) Replaced(id crdt.StreamID, s *crdt.Stream) {
	a.Shown.Replaced(id, s)
	if s != nil {
		a.came(id)
	}
}

func (a *arrivals) came(id crdt.StreamID) {
	s := a.log().Stream(id)
	if s == nil {
		return
	}
	e := a.run.churn.EngineOf(id)
	for ; a.next[e] < s.Next(); a.next[e]++ {
		a.run.came(e, a.next[e])
	}
}

func (c *convergence) came(engine int, seq uint64) {
	if seq < c.from || seq-c.from >= uint64(len(c.batches[engine])) {
		return
	}
	b := &c.batches[engine][seq-c.from]
	if b.left.Add(-1) == 0 {
		b.took = time.Since(c.zero).Nanoseconds() - b.at
		c.missing.Add(-1)
	}
}

// publish has an engine's next batch read by its replica.
func (c *convergence) publish(n *Node, engine int) error {
	seq, batch, _ := c.churn.Next(engine)
	if seq >= c.from {
		if seq-c.from >= uint64(len(c.batches[engine])) {
			return nil // the end
		}
		b := &c.batches[engine][seq-c.from]
		c.missing.Add(1)
		b.left.Store(c.replicas)
		b.at = time.Since(c.zero).Nanoseconds()
	}
	var err error
	n.Do(func(now clock.Instant, co *core.Core) { _, err = co.Publish(now, c.churn.ID(engine), true, seq, batch) })
	return err
}

// converge measures one mesh.
func converge(ctx context.Context, m benchMesh) (c converged, err error) {
	fill := core.NewChurn(1, meshBlocks, m.held, false).FillBatches()
	every := time.Second * 2 * meshBlocks * meshEngines / time.Duration(m.opsPerS) // of one engine
	run := &convergence{churn: core.NewChurn(meshEngines, meshBlocks, m.held, false), zero: time.Now(),
		replicas: int32(m.whole + m.light), from: uint64(fill), batches: make([][]followed, meshEngines)}
	for e := range run.batches {
		run.batches[e] = make([]followed, m.duration/every)
	}
	g, err := newBenchGround(ctx, m, run)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	readers, err := g.readers(ctx)
	if err != nil {
		return c, err
	}
	for range fill {
		for e, n := range readers {
			if err := run.publish(n, e); err != nil {
				return c, err
			}
		}
		if err := clock.Real().Sleep(ctx, 20*time.Millisecond); err != nil {
			return c, err
		}
	}
	runtime.GC()
	cpu, began := cpuTime(), time.Now()
	if c.wakeP99, err = run.play(ctx, readers, every, m); err != nil {
		return c, err
	}
	took := time.Since(began)
	c.cpuCores = (cpuTime() - cpu).Seconds() / took.Seconds()
	c.rssMiB = residentMiB()
	c.p50, c.p99, c.opsPerS, err = run.result(ctx, took)
	return c, err
}

// play publishes batches at an even rate, each reader's on a goroutine of its
// own. It returns how late timers were meanwhile.
func (c *convergence) play(ctx context.Context, readers []*Node, every time.Duration, m benchMesh) (wakeP99 float64, err error) {
	byReader := make(map[*Node][]int)
	for e, n := range readers {
		byReader[n] = append(byReader[n], e)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(readers))
	began := time.Now()
	for n, engines := range byReader {
		wg.Go(func() {
			for turn := range len(c.batches[0]) {
				for _, e := range engines {
					due := began.Add(time.Duration(turn)*every + time.Duration(e)*every/meshEngines)
					if ctx.Err() != nil || clock.Real().Sleep(ctx, time.Until(due)) != nil {
						errs[e] = ctx.Err()
						return
					}
					if errs[e] = c.publish(n, e); errs[e] != nil {
						return
					}
				}
			}
		})
	}
	if m.sample != nil {
		wg.Go(func() {
			for end := began.Add(m.duration); time.Now().Before(end) && clock.Real().Sleep(ctx, time.Second) == nil; {
				m.sample(min(1, float64(time.Since(began))/float64(m.duration)))
			}
		})
	}
	var late []int64
	wg.Go(func() {
		for end := began.Add(m.duration); time.Now().Before(end); {
			slept := time.Now()
			if clock.Real().Sleep(ctx, tickEvery) != nil {
				return
			}
			late = append(late, (time.Since(slept) - tickEvery).Nanoseconds())
		}
	})
	wg.Wait()
	return quantileMillis(late, 0.99), errors.Join(errs...)
}

// quantileMillis is a quantile of nanoseconds, which it sorts; 0 of none.
func quantileMillis(all []int64, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[int(q*float64(len(all)-1))]) / 1e6
}

// result waits for what is on its way, and counts.
func (c *convergence) result(ctx context.Context, took time.Duration) (p50, p99, opsPerS float64, err error) {
	for wait := 0; c.missing.Load() > 0; wait++ {
		if wait == 6000 { // it is long on a machine that is busy with other things
			return 0, 0, 0, fmt.Errorf("%d batches did not come to every replica within a minute", c.missing.Load())
		}
		if err := clock.Real().Sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, 0, 0, err
		}
	}
	var all []int64
	for e := range c.batches {
		for i := range c.batches[e] {
			all = append(all, c.batches[e][i].took)
		}
	}
	if len(all) == 0 {
		return 0, 0, 0, errors.New("too short: no batch was published")
	}
	return quantileMillis(all, 0.5), quantileMillis(all, 0.99), float64(2*meshBlocks*len(all)) / took.Seconds(), nil
}

// residentMiB is the process's resident memory; where the system doesn't tell
// it, what the Go runtime has of it.
func residentMiB() float64 {
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := bytes.Fields(b); len(f) > 1 {
			if pages, err := strconv.ParseInt(string(f[1]), 10, 64); err == nil {
				return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
			}
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return math.Max(0, float64(m.Sys-m.HeapReleased)) / (1 << 20)
}

// liveMiB is what the last garbage collection found in use.
func liveMiB() float64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return float64(sample[0].Value.Uint64()) / (1 << 20)
}
