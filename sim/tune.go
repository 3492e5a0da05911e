package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/sim/policy"
	"github.com/rhizome-router/rhizome/workload"
)

// Tunable is a policy with numbers that an optimiser may set.
type Tunable struct {
	Name   string
	Params []policy.Param
	Make   func(x []float64) Policy
}

// Tunables returns what can be tuned: our rates and margins, and the peers' parameters,
// all by the same method on the same work.
func Tunables() []Tunable {
	w, m := cost.DefaultWeights(), route.DefaultMargins()
	rate := func(name string, def float64) policy.Param {
		return policy.Param{Name: name, Low: 0, High: 2, Default: def}
	}
	all := []Tunable{{
		Name: Ours,
		Params: []policy.Param{
			rate("own decode", w.OwnDecode), rate("prefill externality", w.PrefillExternality),
			rate("KV externality", w.KVExternality), rate("queue externality", w.QueueExternality), rate("eviction", w.Eviction),
			rate("near-tie steps", m.Steps), {Name: "near-tie share", Low: 0, High: 0.2, Default: m.Share},
		},
		Make: func(x []float64) Policy { return shipped(Ours, "least expected added time", tunedConfig(x)) },
	}}
	peers := policy.Tunables()
	for _, p := range policy.All() {
		if t, ok := peers[p.Name]; ok {
			all = append(all, Tunable{Name: p.Name, Params: t.Params, Make: func(x []float64) Policy {
				return peer(p, t.Make(t.Clamp(x)))
			}})
		}
	}
	return all
}

// tunedConfig is the product's at the values of its tunable's parameters.
func tunedConfig(x []float64) route.Config {
	c := with(route.Rhizome)
	c.Weights.OwnDecode, c.Weights.PrefillExternality, c.Weights.KVExternality, c.Weights.QueueExternality = x[0], x[1], x[2], x[3]
	c.Weights.Eviction, c.NearTie.Steps, c.NearTie.Share = x[4], x[5], x[6]
	return c
}

// FindTunable returns what can be tuned by name.
func FindTunable(name string) (Tunable, error) {
	all := Tunables()
	i := slices.IndexFunc(all, func(t Tunable) bool { return t.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}
		return Tunable{}, fmt.Errorf("nothing to tune in %q: want one of %s", name, strings.Join(names, ", "))
	}
	return all[i], nil
}

// Tuned is what a search found.
type Tuned struct {
	Policy  string    `json:"policy"`
	Params  []string  `json:"params"`
	Default []float64 `json:"default"`
	Best    []float64 `json:"best"`
	// Loss of the defaults and of the best, see Loss.
	DefaultLoss float64 `json:"default_loss"`
	BestLoss    float64 `json:"best_loss"`
	Evaluations int     `json:"evaluations"`
}

// Tune searches t's parameters on the scenarios (those of set A, lest what is
// reported be what was tuned on) by CMA-ES from the defaults. budget is the
// number of evaluations, each of which plays every scenario over every seed.
// Equal arguments find equal values.
func Tune(ctx context.Context, t Tunable, scenarios []Scenario, o Options, budget int) (*Tuned, error) {
	out := &Tuned{Policy: t.Name}
	for _, p := range t.Params {
		out.Params, out.Default = append(out.Params, p.Name), append(out.Default, p.Default)
	}
	g, err := newGrounds(ctx, scenarios, o)
	if err != nil {
		return nil, err
	}
	var failed error
	loss := func(x []float64) float64 {
		l, err := g.loss(ctx, t.Make(x))
		if err != nil {
			failed = err
			return math.Inf(1)
		}
		return l
	}
	out.DefaultLoss = loss(out.Default) // 0, and the reference for the others
	out.Best, out.BestLoss, out.Evaluations = slices.Clone(out.Default), out.DefaultLoss, 1
	problem := optimize.Problem{
		Func: func(u []float64) float64 {
			x, outside := t.at(u)
			l := loss(x)
			if l < out.BestLoss {
				out.Best, out.BestLoss = x, l
			}
			out.Evaluations++
			return l + outside
		},
		Status: func() (optimize.Status, error) {
			if failed != nil {
				return optimize.Failure, failed
			}
			return optimize.NotTerminated, ctx.Err()
		},
	}
	// The first steps are a tenth of each range; the library wants to be told
	// twice, as step size and as covariance.
	const first = 0.1
	spread := mat.NewSymDense(len(t.Params), nil)
	for i := range t.Params {
		spread.SetSym(i, i, first*first)
	}
	var around mat.Cholesky
	if !around.Factorize(spread) {
		return nil, fmt.Errorf("tune %s: no parameters", t.Name)
	}
	_, err = optimize.Minimize(problem, t.units(out.Default), &optimize.Settings{FuncEvaluations: budget, Converger: optimize.NeverTerminate{}},
		&optimize.CmaEsChol{InitStepSize: first, InitCholesky: &around, Src: rand.NewPCG(1, 1)})
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, fmt.Errorf("tune %s: %w", t.Name, err)
	}
	return out, nil
}

// units maps parameters to coordinates in which 0 to 1 is the range.
func (t *Tunable) units(x []float64) []float64 {
	u := make([]float64, len(x))
	for i, p := range t.Params {
		if p.Log {
			u[i] = math.Log(x[i]/p.Low) / math.Log(p.High/p.Low)
		} else {
			u[i] = math.Sqrt((x[i] - p.Low) / (p.High - p.Low)) // rates matter most near 0
		}
	}
	return u
}

// at is the inverse of units; what lies outside the range is brought in, and
// how far it was is the penalty.
func (t *Tunable) at(u []float64) (x []float64, outside float64) {
	x = make([]float64, len(u))
	for i, p := range t.Params {
		v := min(max(u[i], 0), 1)
		outside += (u[i] - v) * (u[i] - v)
		if p.Log {
			x[i] = p.Low * math.Pow(p.High/p.Low, v)
		} else {
			x[i] = p.Low + v*v*(p.High-p.Low)
		}
	}
	return x, outside
}

// grounds are the scenarios that something is tuned on.
type grounds struct {
	scenarios []Scenario
	o         Options
	plans     [][]*workload.Plan
	reference []*Row
}

func newGrounds(ctx context.Context, scenarios []Scenario, o Options) (*grounds, error) {
	g := &grounds{scenarios: scenarios, o: o, reference: make([]*Row, len(scenarios))}
	for i := range scenarios {
		plans, err := plansOf(ctx, &scenarios[i], o)
		if err != nil {
			return nil, err
		}
		g.plans = append(g.plans, plans)
	}
	return g, nil
}

// loss is how much worse than the reference a policy does: 0 for the first
// one, which is the reference.
func (g *grounds) loss(ctx context.Context, p Policy) (float64, error) {
	rows := make([]*Row, len(g.scenarios))
	var work []func() error
	o := g.o
	o.Policies, o.Parallel = []Policy{p}, 1
	for i := range g.scenarios {
		work = append(work, func() error {
			runs, err := playAll(ctx, &g.scenarios[i], o, g.plans[i])
			if err == nil {
				rows[i] = tabulate(g.scenarios[i], o, runs, nil).Policies[p.Name]
			}
			return err
		})
	}
	if err := parallel(ctx, g.o.Parallel, work); err != nil {
		return 0, err
	}
	sum := 0.0
	for i, row := range rows {
		if g.reference[i] == nil {
			g.reference[i] = row
		}
		sum += row.Loss(g.reference[i]) / float64(len(rows))
	}
	return sum, nil
}

// Loss compares two runs of one scenario: the mean of the logarithms of the
// ratios of mean TTFT, p99 TTFT and mean end-to-end time, and a point for
// every 10 % of goodput lost. Less is better, 0 is as good as the reference.
func (r *Row) Loss(reference *Row) float64 {
	ratio := func(a, b float64) float64 { return math.Log(max(a, 1e-9) / max(b, 1e-9)) }
	return (ratio(r.TTFTMean, reference.TTFTMean)+ratio(r.TTFTP99, reference.TTFTP99)+ratio(r.E2EMean, reference.E2EMean))/3 +
		10*(reference.Goodput-r.Goodput)
}
