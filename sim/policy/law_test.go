package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

// op is one call of a random play, the same for every instance that plays it.
type op struct {
	kind    string
	replica int
	worker  int
	id      uint64
	keys    []kv.Key
	tokens  int
	after   time.Duration
	up      bool
	tier    kv.Tier
	gauge   float64
	lost    bool
}

func drawOp(t *rapid.T, workers, replicas int) op {
	o := op{
		kind:    rapid.SampledFrom([]string{"choose", "choose", "choose", "first", "done", "done", "events", "scraped", "up", "talk"}).Draw(t, "kind"),
		replica: rapid.IntRange(0, replicas-1).Draw(t, "replica"),
		worker:  rapid.IntRange(0, workers-1).Draw(t, "worker"),
		id:      rapid.Uint64Range(1, 12).Draw(t, "id"),
		after:   time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond,
		up:      rapid.Bool().Draw(t, "up"),
		tier:    kv.Tier(rapid.IntRange(0, 2).Draw(t, "tier")),
		gauge:   rapid.Float64Range(0, 1).Draw(t, "gauge"),
		lost:    rapid.Bool().Draw(t, "lost"),
	}
	o.keys = chain(rapid.IntRange(1, 3).Draw(t, "prompt"), rapid.IntRange(0, 30).Draw(t, "blocks"))
	o.tokens = testBlock*len(o.keys) + rapid.IntRange(0, testBlock-1).Draw(t, "rest")
	return o
}

// stage plays ops on the replicas of one rule.
type stage struct {
	routers []Router
	now     clock.Instant
	down    bool
	up      [][]bool // by replica and worker
	seq     []uint64
	owner   map[uint64]int // of ids in flight: the replica
	chosen  []Choice
}

func newStage(m Maker, workers, replicas int, seed uint64) *stage {
	s := &stage{seq: make([]uint64, workers), owner: map[uint64]int{}}
	s.routers = m(Config{Workers: workers, Replicas: replicas, BlockTokens: testBlock, Seed: seed,
		IndexDown: func(clock.Instant) bool { return s.down }})
	for range replicas {
		s.up = append(s.up, slices.Repeat([]bool{true}, workers))
	}
	return s
}

func (s *stage) play(o op) error {
	s.now = s.now.Add(o.after)
	r := s.routers[o.replica]
	switch o.kind {
	case "choose":
		if _, inFlight := s.owner[o.id]; inFlight {
			return nil
		}
		c := r.Choose(s.now, &Request{ID: o.id, Keys: o.keys, BlockTokens: testBlock, PromptTokens: o.tokens})
		s.owner[o.id] = o.replica
		s.chosen = append(s.chosen, c)
		if c.Worker < 0 || c.Worker >= len(s.seq) || slices.Contains(s.up[o.replica], true) && !s.up[o.replica][c.Worker] {
			return fmt.Errorf("chose worker %d of those up %v", c.Worker, s.up[o.replica])
		}
		if c.CachedTokens < 0 || c.CachedTokens > max(0, o.tokens-1) || c.After < 0 {
			return fmt.Errorf("expects %+v of a prompt of %d tokens", c, o.tokens)
		}
	case "first":
		if at, ok := s.owner[o.id]; ok {
			s.routers[at].FirstToken(s.now, o.id)
		}
	case "done":
		s.done(o.id)
	case "events":
		b := &Batch{Seq: s.seq[o.worker]}
		s.seq[o.worker]++
		for _, k := range o.keys {
			b.Changes = append(b.Changes, Change{Key: k, Tier: o.tier, Present: o.up})
		}
		for i, r := range s.routers {
			if i != o.replica || !o.lost {
				r.Events(s.now, o.worker, b)
			}
		}
	case "scraped":
		v := engine.Value{Value: o.gauge, Known: o.up}
		many := engine.Value{Value: float64(int(o.gauge * 5000)), Known: o.up}
		r.Scraped(s.now, o.worker, &engine.RankTelemetry{KVUsage: v, Waiting: many, WaitingTokens: many, Running: many,
			MaxSeqs: engine.Value{Value: 2500, Known: !o.lost}, HBMTokens: engine.Value{Value: 3000, Known: !o.lost}})
	case "up":
		if !o.up {
			s.seq[o.worker] = 0
		}
		s.up[o.replica][o.worker] = o.up
		r.Up(s.now, o.worker, o.up)
		s.down = o.lost
	case "talk":
		s.talk(o.lost)
	}
	return nil
}

func (s *stage) done(id uint64) {
	if at, ok := s.owner[id]; ok {
		s.routers[at].Done(s.now, id, Usage{CompletionTokens: 7})
		delete(s.owner, id)
	}
}

// talk lets the replicas tell each other what they have to; lost says that it
// doesn't reach the last one.
func (s *stage) talk(lost bool) {
	for i, from := range s.routers {
		p, ok := from.(Peer)
		if !ok {
			continue
		}
		said := p.Tell(s.now)
		if said == nil {
			continue
		}
		for j, to := range s.routers {
			if j != i && !(lost && j == len(s.routers)-1) {
				to.(Peer).Hear(s.now, i, said)
			}
		}
	}
}

// Whatever happens, no rule chooses a worker that is down, none panics, all
// bookings end with their requests, and the same seed chooses the same.
func TestLaw(t *testing.T) {
	for _, named := range All() {
		t.Run(named.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				workers, replicas := rapid.IntRange(1, 12).Draw(t, "workers"), rapid.IntRange(1, 3).Draw(t, "replicas")
				seed := rapid.Uint64().Draw(t, "seed")
				a, b := newStage(named.Make, workers, replicas, seed), newStage(named.Make, workers, replicas, seed)
				for range rapid.IntRange(0, 120).Draw(t, "ops") {
					o := drawOp(t, workers, replicas)
					if err := a.play(o); err != nil {
						t.Fatal(err)
					}
					if err := b.play(o); err != nil {
						t.Fatal(err)
					}
				}
				if !slices.Equal(a.chosen, b.chosen) {
					t.Fatalf("the same seed chose %v and then %v", a.chosen, b.chosen)
				}
				for id := uint64(1); id <= 12; id++ {
					a.done(id)
				}
				a.talk(false)
				a.now = a.now.Add(sequenceExpiry + time.Second)
				for i, r := range a.routers {
					if d, ok := r.(*dynamo); ok {
						d.forgetOld(a.now) // what was said and lost
					}
					in := inner(r)
					if len(in.book.byID) != 0 || !slices.Equal(in.book.loads, make([]load, workers)) || (in.book.active != nil && in.book.active.used != 0) {
						t.Fatalf("replica %d has %+v booked when all is done", i, in.book)
					}
				}
			})
		})
	}
}

func TestByName(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range All() {
		got, err := ByName(n.Name)
		if err != nil || got.Name != n.Name || seen[n.Name] || n.Doc == "" {
			t.Errorf("%q: %+v, %v", n.Name, got, err)
		}
		seen[n.Name] = true
	}
	if _, err := ByName("dynamite"); err == nil {
		t.Error("an unknown name has a rule")
	}
}

func TestTunables(t *testing.T) {
	for name, tn := range Tunables() {
		if _, err := ByName(name); err != nil {
			t.Error(err)
		}
		if n, err := ByName(name + "-fitted"); err != nil || !n.Fitted {
			t.Errorf("%s-fitted: %+v, %v", name, n, err)
		}
		x := tn.Defaults()
		if !slices.Equal(x, tn.Clamp(x)) {
			t.Errorf("%s: defaults %v are out of bounds", name, x)
		}
		for _, p := range tn.Params {
			if p.Name == "" || p.Low >= p.High || (p.Log && p.Low <= 0) {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if got := alone(3, tn.Make(x)).Choose(0, ask(1, chain(1, 3))).Worker; got < 0 || got > 2 {
			t.Errorf("%s made from its defaults chose %d", name, got)
		}
	}
}

// The defaults of a Tunable are the published rule's.
func TestTunableDefaultsArePublished(t *testing.T) {
	tn := Tunables()
	if got := alone(2, tn["dynamo"].Make(tn["dynamo"].Defaults())).(*dynamo).p; got != DefaultDynamo() {
		t.Errorf("dynamo: %+v", got)
	}
	if got := alone(2, tn["lmetric"].Make(tn["lmetric"].Defaults())).(*lmetric).p; got != DefaultLMetric() {
		t.Errorf("lmetric: %+v", got)
	}
	if got := alone(2, tn["llm-d-precise"].Make(tn["llm-d-precise"].Defaults())).(*llmdPrecise).p; got != DefaultLLMDPrecise() {
		t.Errorf("llm-d-precise: %+v", got)
	}
	if got := alone(2, tn["sgl-router"].Make(tn["sgl-router"].Defaults())).(*sglRouter).p; got != DefaultSGLRouter() {
		t.Errorf("sgl-router: %+v", got)
	}
	for _, f := range []struct {
		name string
		x    []float64
	}{{"lmetric", fittedLMetric()}, {"dynamo", fittedDynamo()}, {"llm-d-precise", fittedLLMDPrecise()}, {"sgl-router", fittedSGLRouter()}} {
		if !slices.Equal(f.x, tn[f.name].Clamp(f.x)) {
			t.Errorf("%s: the fitted values %v are out of bounds", f.name, f.x)
		}
	}
}
