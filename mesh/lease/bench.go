package lease

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/rhizome-router/rhizome/kv"
)

// BenchConfig says how Bench measures; zero values mean the defaults.
type BenchConfig struct {
	// Grants is how long grants are counted, 5 s; Idle how long nothing happens
	// but the leader's heartbeats, 10 s; Failovers how often the leader crashes, 5.
	Grants, Idle time.Duration
	Failovers    int
	// Progress, if set, is told the share done, 0 to 1.
	Progress func(share float64)
}

// BenchReport is what agreement costs between three replicas in one process, over
// real sockets on loopback.
type BenchReport struct {
	// GrantsPerS is how many leases were granted a second, asked for through all
	// three replicas, 256 at a time.
	GrantsPerS float64 `json:"grants_per_s"`
	// Commit is from asking for one lease until the replica that asked knows that
	// it is granted, at about 500 a second.
	CommitP50Millis float64 `json:"commit_p50_ms"`
	CommitP99Millis float64 `json:"commit_p99_ms"`
	// Failover is from the crash of the leader until another replica was granted
	// a lease. With few crashes the 99th percentile is the longest.
	FailoverP50Millis float64 `json:"failover_p50_ms"`
	FailoverP99Millis float64 `json:"failover_p99_ms"`
	Failovers         int     `json:"failovers"`
	// SpuriousElections are those while nothing happened.
	SpuriousElections uint64  `json:"spurious_elections"`
	IdleSeconds       float64 `json:"idle_seconds"`
	Cores             int     `json:"cores"`
}

const (
	benchReplicas = 3
	benchAskers   = 4 // of many leases at once, by replica
	benchBatch    = 256
	benchPace     = 6 * time.Millisecond // between one replica's single grants
	benchWait     = 30 * time.Second
)

// Bench measures agreement on this machine.
func Bench(ctx context.Context, cfg BenchConfig) (*BenchReport, error) {
	if cfg.Grants == 0 {
		cfg.Grants = 5 * time.Second
	}
	if cfg.Idle == 0 {
		cfg.Idle = 10 * time.Second
	}
	if cfg.Failovers == 0 {
		cfg.Failovers = 5
	}
	// About what each part takes.
	total := (2*cfg.Grants + cfg.Idle + time.Duration(cfg.Failovers)*4*time.Second + 5*time.Second).Seconds()
	spent := 0.0
	progress := func(d time.Duration) {
		if spent += d.Seconds(); cfg.Progress != nil {
			cfg.Progress(min(1, spent/total))
		}
	}
	g := &benchGround{errs: make(chan error, 64)}
	defer g.close()
	for range benchReplicas {
		if err := g.start(); err != nil {
			return nil, err
		}
	}
	if err := g.settled(ctx); err != nil {
		return nil, err
	}
	progress(5 * time.Second)
	r := &BenchReport{Cores: runtime.GOMAXPROCS(0), Failovers: cfg.Failovers, IdleSeconds: cfg.Idle.Seconds()}
	var err error
	if r.GrantsPerS, err = g.grants(ctx, cfg.Grants); err != nil {
		return nil, err
	}
	progress(cfg.Grants)
	if r.CommitP50Millis, r.CommitP99Millis, err = g.commits(ctx, cfg.Grants); err != nil {
		return nil, err
	}
	progress(cfg.Grants)
	if r.SpuriousElections, err = g.idle(ctx, cfg.Idle, progress); err != nil {
		return nil, err
	}
	var took []float64
	for range cfg.Failovers {
		d, err := g.failover(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, millis(d))
		progress(4 * time.Second)
	}
	r.FailoverP50Millis, r.FailoverP99Millis = quantiles(took)
	if cfg.Progress != nil {
		cfg.Progress(1)
	}
	return r, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

func quantiles(all []float64) (p50, p99 float64) {
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[len(all)/2], all[min(len(all)-1, len(all)*99/100)]
}

// fresh makes commands for workflows that nobody has asked for.
func (g *benchGround) fresh(n int) []Command {
	commands := make([]Command, n)
	for i := range commands {
		no := g.keys.Add(1)
		commands[i] = Command{Kind: Acquire, Holder: Holder{Target: kv.Target{Worker: kv.WorkerID(no % 64), Rank: kv.NoRank}, Boot: 1}, Owner: 1 + no%16}
		binary.BigEndian.PutUint64(commands[i].Key[:], no%(maxLeases/2))
	}
	return commands
}

// grants asks for many leases through all replicas. Those that are held already
// are taken over, so that there is room for all.
func (g *benchGround) grants(ctx context.Context, d time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var granted atomic.Uint64
	var wg sync.WaitGroup
	began := time.Now()
	for _, r := range g.all {
		for range benchAskers {
			wg.Go(func() {
				for ctx.Err() == nil {
					commands := g.fresh(benchBatch)
					for i := range commands {
						if l, held, _ := r.Lease(commands[i].Key); held {
							commands[i].Expect = l.Token
						}
					}
					events, err := r.Do(ctx, commands...)
					if err != nil {
						continue
					}
					for _, e := range events {
						if e.Kind == Granted {
							granted.Add(1)
						}
					}
				}
			})
		}
	}
	wg.Wait()
	n := granted.Load()
	if n == 0 {
		return 0, errors.New("no lease was granted")
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// commits asks for single leases at a steady pace through all replicas.
func (g *benchGround) commits(ctx context.Context, d time.Duration) (p50, p99 float64, err error) {
	var mu sync.Mutex
	var took []float64
	var asked sync.WaitGroup
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(benchPace) {
		for _, r := range g.all {
			asked.Go(func() {
				c := g.fresh(1)
				if l, held, _ := r.Lease(c[0].Key); held {
					c[0].Expect = l.Token
				}
				began := time.Now()
				if _, err := r.Do(ctx, c...); err == nil {
					mu.Lock()
					took = append(took, millis(time.Since(began)))
					mu.Unlock()
				}
			})
		}
	}
	asked.Wait()
	if len(took) == 0 {
		return 0, 0, errors.New("no lease was granted")
	}
	p50, p99 = quantiles(took)
	return p50, p99, nil
}

// idle counts the elections while nothing happens.
func (g *benchGround) idle(ctx context.Context, d time.Duration, progress func(time.Duration)) (uint64, error) {
	term := func() (most uint64) {
		for _, r := range g.all {
			most = max(most, r.Status().Term)
		}
		return most
	}
	before := term()
	for left := d; left > 0; left -= time.Second {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(min(left, time.Second)):
		}
		progress(min(left, time.Second))
	}
	return term() - before, nil
}

// failover crashes the leader, and returns how long it takes until another
// replica is granted a lease. Then a new replica takes its place.
func (g *benchGround) failover(ctx context.Context) (time.Duration, error) {
	i := -1 // on a busy machine an election may be under way
	err := g.await(ctx, "somebody to lead", func() bool {
		i = slices.IndexFunc(g.all, func(r *benchReplica) bool { return r.Status().Leads })
		return i >= 0
	})
	if err != nil {
		return 0, err
	}
	dead := g.all[i]
	g.all = slices.Delete(g.all, i, i+1)
	began := time.Now()
	dead.endpoint.Crash()
	granted := make(chan time.Duration, len(g.all))
	asking, stop := context.WithTimeout(ctx, benchWait)
	var wg sync.WaitGroup
	for _, r := range g.all {
		wg.Go(func() {
			for asking.Err() == nil {
				once, end := context.WithTimeout(asking, 200*time.Millisecond)
				c := g.fresh(1)
				if l, held, _ := r.Lease(c[0].Key); held {
					c[0].Expect = l.Token
				}
				events, err := r.Do(once, c...)
				end()
				if err == nil && events[0].Kind == Granted {
					granted <- time.Since(began)
					return
				}
			}
		})
	}
	var took time.Duration
	select {
	case took = <-granted:
	case <-asking.Done():
	}
	stop()
	wg.Wait()
	dead.stop()
	<-dead.done
	if took == 0 {
		return 0, fmt.Errorf("nobody was granted a lease within %v of the leader's crash", benchWait)
	}
	if err := g.start(); err != nil {
		return 0, err
	}
	return took, g.settled(ctx)
}

// WriteTable writes the report for a human, with the targets.
func (r *BenchReport) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "agreement between %d replicas in one process on %d cores\n\nwhat\tmeasured\ttarget\t\n", benchReplicas, r.Cores)
	row := func(what, measured, target string, met bool) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", what, measured, target, map[bool]string{true: "met", false: "missed"}[met])
	}
	row("leases granted a second", fmt.Sprintf("%.0f", r.GrantsPerS), "at least 20000", r.GrantsPerS >= 20_000)
	row("a lease asked for until known, p99", fmt.Sprintf("%.1f ms", r.CommitP99Millis), "at most 30 ms", r.CommitP99Millis <= 30)
	row(fmt.Sprintf("leader's crash until the next lease, p99 of %d", r.Failovers), fmt.Sprintf("%.0f ms", r.FailoverP99Millis), "at most 1500 ms", r.FailoverP99Millis <= 1500)
	row(fmt.Sprintf("elections in %.0f idle seconds", r.IdleSeconds), fmt.Sprint(r.SpuriousElections), "0", r.SpuriousElections == 0)
	return t.Flush()
}
