package decidebench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

// batch is how many decisions are made before their requests are played to the
// end: so many are in flight beside what the workers had.
const batch = 32

// settled is how many decisions are made, and how long they go back, before any
// are measured: what they have promised has ended by then, and as many as can be
// explained were made.
const (
	settledDecisions = 5000
	settledTime      = 3 * time.Second
)

// place makes one decision, d, and returns how long it took.
func (g *ground) place(id string, p *prompt.Request, d *route.Decision) (time.Duration, error) {
	g.clock.Advance(g.pause / 2)
	q := route.Query{ID: id, Prompt: p}
	from := time.Now()
	err := g.router.DecideInto(q, d)
	return time.Since(from), err
}

// play lets a request get its first token and end; its worker tells that it has
// the end of the prompt, and that it has it no more.
func (g *ground) play(d *route.Decision, p *prompt.Request) {
	g.clock.Advance(g.pause / 2) // so that no two promises end together
	g.router.FirstByte(d)
	m := g.members[d.Target]
	if keys := p.TokenKeys(prompt.Form{BlockTokens: blockTokens}); len(keys) > 0 {
		g.index.Apply(m.CacheAt().Slot, stored(keys[g.shared:]))
		g.index.Apply(m.CacheAt().Slot, evicted(keys[g.shared:]))
	}
	m.Told()
	g.router.Done(d, route.Outcome{Result: route.Completed, Usage: route.Usage{CachedTokens: -1}})
}

// sample makes decisions for so long, one after the other, of prompts whose keys
// are known or, with hashing, not.
func (g *ground) sample(ctx context.Context, budget time.Duration, hashing bool) (took []float64, allocs float64, err error) {
	var placed [batch]route.Decision
	ids := make([]string, 4*batch)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	var before, after runtime.MemStats
	made, warm := 0, batch
	if budget > time.Millisecond {
		warm = max(settledDecisions, int(settledTime/g.pause))
	}
	took = make([]float64, 0, 1<<17)
	mallocs := uint64(0)
	var until time.Time
	for made <= warm || time.Now().Before(until) || len(took) < 4*batch {
		if made <= warm {
			until = time.Now().Add(budget)
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, fmt.Errorf("bench decisions: %w", err)
		}
		prompts := g.prompts
		if hashing {
			prompts = nil
			for i := range batch {
				prompts = append(prompts, request(g.prompts[(made+i)%len(g.prompts)].Tokens))
			}
		}
		runtime.ReadMemStats(&before)
		for i := range placed {
			t, err := g.place(ids[(made+i)%len(ids)], prompts[(made+i)%len(prompts)], &placed[i])
			if err != nil {
				return nil, 0, fmt.Errorf("bench decisions: %w", err)
			}
			if made >= warm {
				took = append(took, micros(t))
			}
		}
		runtime.ReadMemStats(&after)
		if made += batch; len(took) > 0 {
			mallocs += after.Mallocs - before.Mallocs
		}
		for i := range placed {
			g.play(&placed[i], prompts[(made-batch+i)%len(prompts)])
		}
	}
	return took, float64(mallocs) / float64(len(took)), nil
}

// crowd lets so many callers make decisions at once, each the next as soon as
// it has one or, with a pause, after a time of its own that is so long on average.
// It returns how long each decision took, and how many there were a second.
func (g *ground) crowd(ctx context.Context, callers int, budget, pause time.Duration) (took []float64, perSecond float64, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed atomic.Pointer[error]
	own := make([]*prompt.Request, callers) // each their own: a request is one goroutine's
	for who := range own {
		own[who] = request(g.prompts[who%len(g.prompts)].Tokens)
		own[who].TokenKeys(prompt.Form{BlockTokens: blockTokens})
	}
	from := time.Now()
	until := from.Add(budget)
	for who := range callers {
		all.Go(func() {
			var mine []float64
			var d route.Decision
			rng := clock.Rand(uint64(who), "bench of callers")
			for i := 0; (i == 0 || time.Now().Before(until)) && ctx.Err() == nil; i++ {
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(pause)))
				t, err := g.place(strconv.Itoa(who), own[who], &d)
				if err != nil {
					failed.Store(&err)
					return
				}
				mine = append(mine, micros(t))
				g.play(&d, own[who])
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	all.Wait()
	if e := failed.Load(); e != nil {
		return nil, 0, fmt.Errorf("bench concurrent decisions: %w", *e)
	}
	return took, float64(len(took)) / time.Since(from).Seconds(), ctx.Err()
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// quantile returns the q-quantile of values, which it sorts; 0 of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}
