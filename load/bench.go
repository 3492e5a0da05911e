package load

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rhizome-router/rhizome/clock"
)

// BenchConfig says how [BenchGateway] measures.
type BenchConfig struct {
	// Duration is how long it measures altogether. 0 means 30 s; less than 1 s
	// measures noise.
	Duration time.Duration
	// Connections is how many clients ask at the same time where throughput is
	// measured. 0 means 16.
	Connections int
	// StartRouter starts the router to be measured in this process, over
	// workers given as --worker lines.
	StartRouter func(ctx context.Context, workers []string) (*Router, error)
	// Progress, if set, is told the share done, 0 to 1.
	Progress func(share float64)
}

// BenchReport is what a router in between costs. Times are microseconds.
//
// Added is what a request through the router took longer than its twin that
// was sent straight to the worker a moment before or after; where the twin took
// longer it counts as 0. Calibration is the same for the smallest relay there
// can be, a copy loop on net/http that reads nothing of what passes, in the same
// process and run: what is above it is the router's own.
type BenchReport struct {
	AddedP50Micros4K   Figure `json:"added_p50_us_4k"`
	AddedP99Micros4K   Figure `json:"added_p99_us_4k"`
	AddedP50Micros64K  Figure `json:"added_p50_us_64k"`
	AddedP99Micros64K  Figure `json:"added_p99_us_64k"`
	AddedP50Micros500K Figure `json:"added_p50_us_500k"`
	AddedP99Micros500K Figure `json:"added_p99_us_500k"`

	RelayP50Micros4K   Figure `json:"calibration_relay_p50_us_4k"`
	RelayP50Micros64K  Figure `json:"calibration_relay_p50_us_64k"`
	RelayP50Micros500K Figure `json:"calibration_relay_p50_us_500k"`

	DirectP50Micros4K   Figure `json:"direct_p50_us_4k"`
	DirectP50Micros64K  Figure `json:"direct_p50_us_64k"`
	DirectP50Micros500K Figure `json:"direct_p50_us_500k"`

	// RPSPerCore is how many 4 KB requests a second one core of the router
	// handles: one second over the CPU time that a request takes more through
	// the router than without it. RelayRPSPerCore is the relay's. Both are null
	// where the system doesn't tell CPU time.
	RPSPerCore      Figure `json:"rps_per_core"`
	RelayRPSPerCore Figure `json:"calibration_relay_rps_per_core"`

	Rounds          int     `json:"rounds"` // requests of each size on each way, for the times
	Cores           int     `json:"cores"`
	Connections     int     `json:"connections"`
	DurationSeconds float64 `json:"duration_seconds"`
}

// benchSizes are the sizes of the request bodies, in bytes.
var benchSizes = [...]int{4 << 10, 64 << 10, 500 << 10}

// The ways from client to worker.
const (
	wayDirect = iota
	wayRelay
	wayRouter
	ways
)

// BenchGateway measures what a router adds to requests, over real sockets on
// loopback and connections that stay open, on all ways in turn.
func BenchGateway(ctx context.Context, cfg BenchConfig) (*BenchReport, error) {
	cfg.Duration = cmp.Or(cfg.Duration, 30*time.Second)
	cfg.Connections = cmp.Or(cfg.Connections, 16)
	if cfg.Progress == nil {
		cfg.Progress = func(float64) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, err := newBenchGround(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("bench the gateway: %w", err)
	}
	defer g.close()
	r := &BenchReport{Cores: runtime.GOMAXPROCS(0), Connections: cfg.Connections, DurationSeconds: cfg.Duration.Seconds()}
	if err := g.measureTimes(ctx, cfg, r); err != nil {
		return nil, fmt.Errorf("bench the gateway: %w", err)
	}
	if err := g.measureCPU(ctx, cfg, r); err != nil {
		return nil, fmt.Errorf("bench the gateway: %w", err)
	}
	return r, nil
}

// timesShare is the part of the duration that goes to times, the rest goes to
// throughput; warmShare is the part of each that isn't counted.
const (
	timesShare = 0.7
	warmShare  = 0.1
)

// measureTimes sends one request after the other: each size on each way, in an
// order drawn anew every round.
func (g *benchGround) measureTimes(ctx context.Context, cfg BenchConfig, r *BenchReport) error {
	var conns [ways]*benchConn
	for way := range conns {
		c, err := dialBench(ctx, g.addrs[way])
		if err != nil {
			return err
		}
		defer c.Close()
		conns[way] = c
	}
	var direct, relay, router [len(benchSizes)]*hdrhistogram.Histogram
	for i := range benchSizes {
		direct[i], relay[i], router[i] = newMicros(), newMicros(), newMicros()
	}
	random := clock.Rand(1, "bench")
	length := time.Duration(timesShare * float64(cfg.Duration))
	begin := time.Now()
	for n := 0; time.Since(begin) < length || r.Rounds == 0; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		warm := time.Since(begin) < time.Duration(warmShare*float64(length))
		for i := range benchSizes {
			took, err := g.round(conns, i, n, random)
			if err != nil {
				return err
			}
			if !warm {
				direct[i].RecordValue(took[wayDirect].Nanoseconds())
				relay[i].RecordValue(max(0, took[wayRelay]-took[wayDirect]).Nanoseconds())
				router[i].RecordValue(max(0, took[wayRouter]-took[wayDirect]).Nanoseconds())
			}
		}
		if !warm {
			r.Rounds++
		}
		cfg.Progress(timesShare * min(1, float64(time.Since(begin))/float64(length)))
	}
	at := func(h *hdrhistogram.Histogram, q float64) Figure { return Figure(float64(h.ValueAtQuantile(q)) / 1e3) }
	r.DirectP50Micros4K, r.DirectP50Micros64K, r.DirectP50Micros500K = at(direct[0], 50), at(direct[1], 50), at(direct[2], 50)
	r.RelayP50Micros4K, r.RelayP50Micros64K, r.RelayP50Micros500K = at(relay[0], 50), at(relay[1], 50), at(relay[2], 50)
	r.AddedP50Micros4K, r.AddedP50Micros64K, r.AddedP50Micros500K = at(router[0], 50), at(router[1], 50), at(router[2], 50)
	r.AddedP99Micros4K, r.AddedP99Micros64K, r.AddedP99Micros500K = at(router[0], 99), at(router[1], 99), at(router[2], 99)
	return nil
}

// newMicros is a histogram of nanoseconds up to a minute.
func newMicros() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Minute), 3) }

// round sends the n-th request of a size on every way and returns how long each
// took.
func (g *benchGround) round(conns [ways]*benchConn, size, n int, random *rand.Rand) (took [ways]time.Duration, err error) {
	request := g.requests[size][n%len(g.requests[size])]
	order := [ways]int{wayDirect, wayRelay, wayRouter}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, way := range order {
		begin := time.Now()
		if err := conns[way].ask(request); err != nil {
			return took, err
		}
		took[way] = time.Since(begin)
	}
	return took, nil
}

// measureCPU lets many clients ask at once, on one way after the other in short
// turns, and divides the CPU time of the process by the requests.
func (g *benchGround) measureCPU(ctx context.Context, cfg BenchConfig, r *BenchReport) error {
	const turns = 4
	turn := time.Duration((1 - timesShare) * float64(cfg.Duration) / (turns * ways))
	var micros [ways][]float64 // of CPU, per request
	for i := range turns * ways {
		way := i % ways
		n, cpu, err := g.flood(ctx, g.addrs[way], cfg.Connections, turn)
		if err != nil {
			return err
		}
		if n > 0 && i >= ways { // the first turn on each way warms up
			micros[way] = append(micros[way], float64(cpu.Nanoseconds())/1e3/float64(n))
		}
		cfg.Progress(timesShare + (1-timesShare)*float64(i+1)/(turns*ways))
	}
	perCore := func(way int) Figure {
		more := middle(micros[way]) - middle(micros[wayDirect])
		if !(more > 0) {
			return Figure(math.NaN())
		}
		return Figure(1e6 / more)
	}
	r.RPSPerCore, r.RelayRPSPerCore = perCore(wayRouter), perCore(wayRelay)
	return nil
}

// middle is the median; NaN of nothing.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// flood lets n clients ask for small things as fast as they get answers, and
// returns how many requests were answered and the CPU time that took.
func (g *benchGround) flood(ctx context.Context, addr string, n int, length time.Duration) (requests int, cpu time.Duration, err error) {
	var wg sync.WaitGroup
	counts, errs := make([]int, n), make([]error, n)
	conns := make([]*benchConn, n)
	for i := range conns {
		if conns[i], err = dialBench(ctx, addr); err != nil {
			return 0, 0, err
		}
		defer conns[i].Close()
	}
	before, end := cpuTime(), time.Now().Add(length)
	for i, c := range conns {
		wg.Go(func() {
			for time.Now().Before(end) && errs[i] == nil {
				errs[i] = c.ask(g.requests[0][(i+counts[i])%len(g.requests[0])])
				counts[i]++
			}
		})
	}
	wg.Wait()
	cpu = cpuTime() - before
	for i := range counts {
		requests += counts[i]
		err = cmp.Or(err, errs[i])
	}
	return requests, cpu, err
}
