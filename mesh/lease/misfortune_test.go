package lease_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/mesh/lease"
	"github.com/rhizome-router/rhizome/transport"
)

// played is replicas in misfortune, and what clients saw of it.
type played struct {
	*pond
	*history
	rand    *rand.Rand
	stop    chan struct{}
	once    sync.Once
	clients sync.WaitGroup
	pace    atomic.Int64
	asking  atomic.Pointer[[]*replica]
	happen  map[string]int // what happened, how often

	lookMu  sync.Mutex
	sides   [][]*replica // while the network is cut
	changed time.Time    // when somebody came or went, or the network changed
	stood   map[*replica]lease.At
	begun   int // clusters that were begun from a copy in sight of others
	errs    []error
}

// misfortune is what happens to replicas.
type misfortune struct {
	what string
	do   func(p *played)
}

// The mild misfortunes a cluster survives.
var mild = []misfortune{
	{"splits", func(p *played) {
		all := p.shuffled()
		cut := 1 + p.rand.IntN(len(all)-1)
		p.split(all[:cut], all[cut:])
		time.Sleep(time.Duration(1+p.rand.IntN(8)) * time.Second)
	}},
	{"pauses", (*played).pause},
	{"leaders killed", func(p *played) {
		if l := leaderOf(p.all...); l != nil {
			p.replace(l)
			time.Sleep(5 * time.Second)
		}
	}},
	{"bad links", func(p *played) {
		all := p.shuffled()
		for _, from := range all {
			if to := all[p.rand.IntN(len(all))]; to != from {
				p.net.FaultyFrom(from.addr, to.addr, transport.Faults{Delay: time.Millisecond, Jitter: 20 * time.Millisecond, Loss: 0.2 * p.rand.Float64(), Duplicate: 0.1, Reorder: 0.1})
			}
		}
		time.Sleep(3 * time.Second)
	}},
}

// Of the grave ones it ends, or has another beside it.
var grave = []misfortune{
	{"quorums killed", func(p *played) {
		p.replace(p.shuffled()[:3]...)
		p.slowly(15 * time.Second)
	}},
	{"long splits", func(p *played) {
		// Of four three vote, so one half has a quorum, and the other begins anew
		// after 10 s.
		p.end(false, p.shuffled()[0])
		p.moved()
		p.within(60*time.Second, "three vote", func() bool { return agreed(3, p.all...) })
		all := p.shuffled()
		p.split(all[:2], all[2:])
		p.slowly(20 * time.Second)
		p.heal()
		p.add(nil)
	}},
	{"splits of all quorums", func(p *played) {
		// Five vote, and of the four that are left no half has a quorum.
		all := p.shuffled()
		p.remove(all[0])
		p.slowly(5 * time.Second)
		p.split(all[1:3], all[3:])
		p.slowly(20 * time.Second)
		p.heal()
		p.add(nil)
	}},
	{"restarts of all", func(p *played) {
		var saved [][]byte
		for _, r := range p.all {
			saved = append(saved, r.Save())
		}
		p.remove(slices.Clone(p.all)...)
		p.add(saved...)
		p.slowly(10 * time.Second)
	}},
}

func (p *played) shuffled() []*replica {
	all := slices.Clone(p.all)
	p.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// pause stops one, the leader if there is one: it says nothing, and what is said
// to it waits until it goes on. Its own clock does not stop, as that of a stopped
// process would: for that there is a test with processes, in cmd/rhizome.
func (p *played) pause() {
	r, d := p.shuffled()[0], time.Duration(500+p.rand.IntN(2000))*time.Millisecond
	if l := leaderOf(p.all...); l != nil {
		r = l
	}
	for _, o := range p.others(r) {
		p.net.FaultyFrom(r.addr, o.addr, transport.Faults{Delay: d})
		p.net.FaultyFrom(o.addr, r.addr, transport.Faults{Delay: d})
	}
	time.Sleep(d)
}

// split cuts the network in two.
func (p *played) split(a, b []*replica) {
	p.lookMu.Lock()
	defer p.lookMu.Unlock()
	p.net.Partition(addrsOf(a), addrsOf(b))
	p.sides, p.changed = [][]*replica{slices.Clone(a), slices.Clone(b)}, time.Now()
}

func (p *played) heal() {
	p.lookMu.Lock()
	defer p.lookMu.Unlock()
	p.net.Heal()
	if p.sides != nil {
		p.sides, p.changed = nil, time.Now()
	}
}

// slowly waits, while clients ask less often.
func (p *played) slowly(d time.Duration) {
	p.pace.Store(8)
	time.Sleep(d)
	p.pace.Store(1)
}

// remove crashes some, add starts others, and replace does both.
func (p *played) remove(some ...*replica) {
	left := p.others(some...)
	if len(left) > 0 {
		p.asking.Store(&left)
	}
	p.end(true, some...)
	p.moved()
}

func (p *played) add(saved ...[]byte) {
	for _, s := range saved {
		p.start(s)
	}
	p.moved()
}

func (p *played) replace(some ...*replica) {
	p.remove(some...)
	p.add(make([][]byte, len(some))...)
}

func (p *played) moved() {
	p.lookMu.Lock()
	defer p.lookMu.Unlock()
	p.asking.Store(new(slices.Clone(p.all)))
	p.changed = time.Now()
}

// look notes how replicas stand. A cluster that is new was begun from the latest
// copy that its first server could see, so what clients of those it saw were told
// is not lost.
func (p *played) look() {
	p.lookMu.Lock()
	defer p.lookMu.Unlock()
	stands := map[*replica]lease.At{}
	for _, r := range *p.asking.Load() {
		at, past := r.Stand()
		stands[r] = at
		if !p.saw(at.Cluster, past) {
			continue
		}
		first := slices.IndexFunc(past, func(b lease.Begin) bool { return b.Cluster == at.Cluster })
		if first < 1 || time.Since(p.changed) < 9*time.Second {
			continue
		}
		p.begun++
		for o, was := range p.stood { // order-free: each by itself
			if o != r && was.Cluster == past[first-1].Cluster && was.Index > past[first].From && p.sees(r, o) {
				p.errs = append(p.errs, fmt.Errorf("%s is in a cluster that began from index %d, though %s, in sight, knew of %d", r.name, past[first].From, o.name, was.Index))
			}
		}
	}
	p.stood = stands
}

// sees reports whether two are on one side.
func (p *played) sees(a, b *replica) bool {
	return !slices.ContainsFunc(p.sides, func(side []*replica) bool { return slices.Contains(side, a) != slices.Contains(side, b) })
}

// play runs clients against five replicas in misfortune: some mild ones, and a
// grave one in between.
func play(t *testing.T, seed uint64, times int) (p *played) {
	synctest.Test(t, func(t *testing.T) {
		p = begin(t, 5, seed)
		defer p.close()
		worst := p.rand.IntN(times)
		for i := range times {
			m := mild[p.rand.IntN(len(mild))]
			if i == worst {
				m = grave[int(seed)%len(grave)]
			}
			p.happen[m.what]++
			m.do(p)
			p.heal()
			time.Sleep(time.Duration(p.rand.IntN(4)) * time.Second)
		}
		p.over()
	})
	return p
}

// begin has replicas agree, three or five, and clients ask them.
func begin(t *testing.T, replicas int, seed uint64) *played {
	p := &played{
		pond: newPondOf(t, replicas, lease.Config{TTL: time.Hour}), history: &history{pasts: make(map[lease.Cluster][]lease.Begin)},
		rand: rand.New(rand.NewPCG(seed, 1)), stop: make(chan struct{}), happen: make(map[string]int),
	}
	p.pace.Store(1)
	p.moved()
	p.within(20*time.Second, "all vote", func() bool { return agreed(replicas, p.all...) })
	for id := range 8 {
		p.clients.Go(func() { p.client(id+1, rand.New(rand.NewPCG(seed, uint64(id+2)))) })
	}
	return p
}

// quiet ends the clients, and close all.
func (p *played) quiet() {
	p.once.Do(func() { close(p.stop) })
	p.clients.Wait()
}

func (p *played) close() {
	p.quiet()
	p.pond.close()
}

// over ends it: all agree, and 2 s later all tables are equal.
func (p *played) over() {
	p.within(60*time.Second, "all agree again", func() bool { return agreed(5, p.all...) })
	p.quiet()
	time.Sleep(2 * time.Second)
	first := p.all[0].Status()
	for _, r := range p.all {
		if s := r.Status(); s.Digest != first.Digest || s.Leases != first.Leases {
			p.errs = append(p.errs, fmt.Errorf("2 s after all agree %s has digest %s, %s has %s", r.name, s.Digest, p.all[0].name, first.Digest))
		}
	}
	for _, s := range first.Servers {
		if n, _ := strconv.Atoi(s.ID[1:4]); n > 5 {
			p.happen["voters replaced"]++
		}
	}
	p.happen["clusters begun from copies"] = len(p.pasts) - 1
	p.happen["of them in sight of others"] = p.begun
}

// TestHistoriesAreLinearizable: what clients of any replica are told of leases, by
// the log and by verified reads, could have happened one after the other, also
// where a cluster ended and another began from a copy. RHIZOME_TEST_SEEDS plays
// more than the 20 histories of a normal run.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	seeds, times := 20, 4
	if raceEnabled {
		seeds, times = len(grave), 2 // each is eight times as slow; make test-histories plays all
	}
	if s := os.Getenv("RHIZOME_TEST_SEEDS"); s != "" {
		seeds, _ = strconv.Atoi(s)
	}
	var mu sync.Mutex
	ops, unknown, happened := 0, 0, map[string]int{}
	for _, m := range slices.Concat(mild, grave) {
		happened[m.what] = 0
	}
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			t.Run(strconv.Itoa(seed), func(t *testing.T) {
				t.Parallel()
				p := play(t, uint64(seed), times)
				for _, err := range append(p.errs, p.judge()) {
					if err != nil {
						t.Error(err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for _, o := range p.ops {
					if o.out.unknown {
						unknown++
					}
				}
				ops += len(p.ops)
				for what, n := range p.happen { // order-free: sums
					happened[what] += n
				}
			})
		}
	})
	t.Logf("%d operations in %d histories, %d of them with an unknown end; %v", ops, seeds, unknown, happened)
	for _, what := range slices.Sorted(maps.Keys(happened)) {
		if happened[what] == 0 && seeds >= 20 {
			t.Errorf("there were no %s", what)
		}
	}
	if ops < 150*times*seeds {
		t.Errorf("only %d operations", ops)
	}
}
