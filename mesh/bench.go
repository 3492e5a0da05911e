package mesh

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// BenchConfig says how [Bench] measures.
type BenchConfig struct {
	// Duration is how long each size of the mesh is measured. 0 means 5 s.
	Duration time.Duration
	// Long, if not 0, is how long a mesh of 3 runs besides, for its memory and
	// CPU time.
	Long time.Duration
	// Progress, if set, is told the share done, 0 to 1.
	Progress func(share float64)

	sizes benchSizes // of what is measured; the zero value: as the report says
}

// benchSizes are how large things are that are measured.
type benchSizes struct {
	meshes                   [3]benchMesh
	applyEngines, applyTurns int
	streams                  int // of the rejoin
}

// withDefaults returns s, or what the report says in place of nothing.
func (s benchSizes) withDefaults() benchSizes {
	if s.streams == 0 {
		return benchSizes{meshes: [3]benchMesh{{whole: 3, held: meshHeld}, {whole: 16, held: meshHeld}, {whole: 4, light: 60, held: meshHeld}},
			applyEngines: applyEngines, applyTurns: applyTurns, streams: rejoinStreams}
	}
	return s
}

// BenchReport is what the mesh costs. An op is a block that comes to a cache or
// goes from it.
type BenchReport struct {
	// Convergence is the time from Publish at the replica that reads an engine
	// until the batch is applied at the last replica, at ConvergenceOpsPerS of all
	// engines together. N3 and N16 are whole replicas, each the reader of some
	// engines; at N64 one reads all engines, 3 are whole receivers, and 60 keep
	// the logs but no index, read nothing and are members by decree.
	ConvergenceP50MillisN3  float64 `json:"convergence_p50_ms_n3"`
	ConvergenceP99MillisN3  float64 `json:"convergence_p99_ms_n3"`
	ConvergenceP50MillisN16 float64 `json:"convergence_p50_ms_n16"`
	ConvergenceP99MillisN16 float64 `json:"convergence_p99_ms_n16"`
	ConvergenceP50MillisN64 float64 `json:"convergence_p50_ms_n64"`
	ConvergenceP99MillisN64 float64 `json:"convergence_p99_ms_n64"`
	ConvergenceOpsPerS      float64 `json:"convergence_ops_per_s"` // the least of the three, as it was
	// WakeP99 is how much later than asked a goroutine woke meanwhile that slept
	// for 5 ms: where that is as long as convergence, the machine was busy, and
	// not the mesh slow.
	WakeP99MillisN3  float64 `json:"calibration_wake_p99_ms_n3"`
	WakeP99MillisN16 float64 `json:"calibration_wake_p99_ms_n16"`
	WakeP99MillisN64 float64 `json:"calibration_wake_p99_ms_n64"`
	// CPU time of the process by second, for all replicas together.
	CPUCoresN3  float64 `json:"cpu_cores_n3"`
	CPUCoresN16 float64 `json:"cpu_cores_n16"`
	CPUCoresN64 float64 `json:"cpu_cores_n64"`

	// OpsPerSPerCore is how many ops a second of CPU time decodes, applies and
	// shows in an index at a replica that receives them, of caches that are full.
	OpsPerSPerCore float64 `json:"ops_per_s_per_core"`
	// BytesPerOp is what an op takes in a frame, of as many that come as go;
	// BytesPerInsert of those that come. Native engines' hashes are the router's
	// own keys.
	BytesPerOp           float64 `json:"bytes_per_op"`
	BytesPerOpNative     float64 `json:"bytes_per_op_native"`
	BytesPerInsert       float64 `json:"bytes_per_insert"`
	BytesPerInsertNative float64 `json:"bytes_per_insert_native"`

	// RejoinBytesRatio is what two replicas send each other after a partition,
	// over the bytes of the ops that one of them lacks.
	RejoinBytesRatio float64 `json:"rejoin_bytes_ratio"`
	RejoinBytes      int     `json:"rejoin_bytes"`
	RejoinOpsBytes   int     `json:"rejoin_ops_bytes"`

	// RSSMiB is the resident memory of the process with the 16 replicas of
	// N16 in it.
	RSSMiB float64 `json:"rss_mib"`

	Cores           int         `json:"cores"`
	DurationSeconds float64     `json:"duration_seconds"`
	Long            *LongReport `json:"long,omitempty"`
}

// LongReport is what three replicas used while they ran for long.
type LongReport struct {
	Seconds   float64 `json:"seconds"`
	OpsPerS   float64 `json:"ops_per_s"`
	P99Millis float64 `json:"convergence_p99_ms"`
	// RSS is of the whole process: a fifth into the run, at the end, and at most.
	RSSMiBBegin float64 `json:"rss_mib_begin"`
	RSSMiBEnd   float64 `json:"rss_mib_end"`
	RSSMiBMost  float64 `json:"rss_mib_most"`
	// Live is what the last garbage collection found in use, then: what grows for
	// ever shows there. RSS is up to twice as much and some, as the collector lets
	// it be, and takes minutes to get there.
	LiveMiBBegin float64 `json:"live_mib_begin"`
	LiveMiBEnd   float64 `json:"live_mib_end"`
	CPUCores     float64 `json:"cpu_cores"`
}

// benchOpsPerS is the rate of ops of all engines together, longOpsPerS that of
// the long run.
const (
	benchOpsPerS = 20_000
	longOpsPerS  = 10_000
)

// Bench measures the mesh on this machine, over real sockets on loopback.
func Bench(ctx context.Context, cfg BenchConfig) (*BenchReport, error) {
	if cfg.Duration == 0 {
		cfg.Duration = 5 * time.Second
	}
	if cfg.Progress == nil {
		cfg.Progress = func(float64) {}
	}
	began := time.Now()
	r := &BenchReport{Cores: runtime.GOMAXPROCS(0), ConvergenceOpsPerS: benchOpsPerS}
	sizes := cfg.sizes.withDefaults()
	steps := []func() error{
		func() error { return r.measureApply(sizes.applyEngines, sizes.applyTurns) },
		func() error { return r.measureRejoin(sizes.streams) },
	}
	var found [len(sizes.meshes)]converged
	for i, m := range sizes.meshes {
		m.opsPerS, m.duration = benchOpsPerS, cfg.Duration
		steps = append(steps, func() (err error) {
			found[i], err = converge(ctx, m)
			r.ConvergenceOpsPerS = min(r.ConvergenceOpsPerS, found[i].opsPerS)
			return err
		})
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("bench the mesh: %w", err)
		}
		debug.FreeOSMemory() // the next one is not to pay for this one's garbage
		cfg.Progress(float64(i+1) / float64(len(steps)))
	}
	c := &found[0]
	r.ConvergenceP50MillisN3, r.ConvergenceP99MillisN3, r.CPUCoresN3, r.WakeP99MillisN3 = c.p50, c.p99, c.cpuCores, c.wakeP99
	c = &found[1]
	r.ConvergenceP50MillisN16, r.ConvergenceP99MillisN16, r.CPUCoresN16, r.WakeP99MillisN16 = c.p50, c.p99, c.cpuCores, c.wakeP99
	r.RSSMiB = c.rssMiB
	c = &found[2]
	r.ConvergenceP50MillisN64, r.ConvergenceP99MillisN64, r.CPUCoresN64, r.WakeP99MillisN64 = c.p50, c.p99, c.cpuCores, c.wakeP99
	if cfg.Long > 0 {
		if err := r.measureLong(ctx, cfg); err != nil {
			return nil, fmt.Errorf("bench the mesh for long: %w", err)
		}
	}
	r.DurationSeconds = time.Since(began).Seconds()
	return r, nil
}

// longBegins is the share of the long run after which rings and caches are full.
const longBegins = 0.2

// longRings are full by then: what grows after that grows for ever.
// With the default's 256 MiB they would fill all the time.
const longRings = 16 << 20

// measureLong runs three replicas for long.
func (r *BenchReport) measureLong(ctx context.Context, cfg BenchConfig) error {
	l := &LongReport{}
	m := cfg.sizes.withDefaults().meshes[0]
	m.opsPerS, m.duration = longOpsPerS, cfg.Long
	m.rings = longRings
	m.sample = func(share float64) {
		now, live := residentMiB(), liveMiB()
		if share <= longBegins || l.RSSMiBBegin == 0 {
			l.RSSMiBBegin, l.LiveMiBBegin = now, live
		}
		l.RSSMiBEnd, l.RSSMiBMost, l.LiveMiBEnd = now, max(l.RSSMiBMost, now), live
		cfg.Progress(share)
	}
	c, err := converge(ctx, m)
	l.Seconds, l.OpsPerS, l.P99Millis, l.CPUCores = cfg.Long.Seconds(), c.opsPerS, c.p99, c.cpuCores
	r.Long = l
	return err
}
