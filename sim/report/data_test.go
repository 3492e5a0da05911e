package report

import (
	"fmt"
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/sim"
)

// peers are the policies that made-up tables hold, from the quickest to the
// slowest.
var peers = []string{
	sim.Ours, "lmetric-fitted", "lmetric", "dynamo-fitted", "llm-d-precise-fitted", "ttft-only", "sticky", "dynamo", "sgl-router-fitted",
	"llm-d-precise", "dynamo-two-tier", "article", "smg-radix-index", "smg", "sgl-router", "llm-d-approx", "aibrix-prefix",
	"least-requests", "power-of-two", "cache-aware", "round-robin", "random",
}

// madeUp returns a plausible table of n policies, the same for the same name.
func madeUp(name string, n, seeds int) *sim.Table {
	r := clock.Rand(1, name)
	t := &sim.Table{
		Scenario: sim.Scenario{
			Name: name, Set: "B", Workload: sim.Workload{Kind: sim.Trace, Speed: 2}, Replicas: 3,
			Fleet: sim.Fleet{Workers: 8, Preset: "llama3-70b-h100-tp4", Profile: "vllm"},
			Goals: sim.Goals{TTFT: 5 * time.Second, TPOT: 100 * time.Millisecond},
		},
		Column:   sim.Learned,
		Policies: map[string]*sim.Row{}, Pictures: map[string]*sim.Picture{}, DecisionMicros: map[string]float64{},
		Bound: sim.Bound{TTFTMean: 0.52 + 0.05*r.Float64(), Cached: 0.366},
	}
	for s := range seeds {
		t.Seeds = append(t.Seeds, uint64(1+s))
	}
	for i, p := range peers[:n] {
		t.Order = append(t.Order, p)
		bad := float64(i) / 8 * (0.9 + 0.2*r.Float64())
		row := madeUpRow(bad, t.Bound.Cached)
		if seeds > 1 {
			row.CI95 = map[string]float64{}
			for _, f := range figures() {
				if f.name != "requests" && f.name != "cached_error" {
					row.CI95[f.name] = f.of(row) * (0.01 + 0.05*r.Float64())
				}
			}
		}
		t.Policies[p] = row
		t.Pictures[p] = madeUpPicture(name+p, row, bad)
		t.DecisionMicros[p] = 1.5 + 20/(1+float64(i))
		if p == sim.Ours {
			continue
		}
		for _, figure := range []string{"ttft_mean_s", "ttft_p99_s", "tpot_mean_s", "e2e_mean_s", "goodput"} {
			ratio := 1 / (1 + bad*(0.5+0.5*r.Float64()))
			if figure == "goodput" {
				ratio = 1 + bad*0.08
			}
			v := sim.Versus{Policy: sim.Ours, Than: p, Figure: figure, Ratio: ratio, Low: ratio, High: ratio}
			if seeds > 1 {
				half := 1 + 0.02 + 0.08*r.Float64()
				v.Low, v.High = ratio/half, ratio*half
			}
			t.Versus = append(t.Versus, v)
		}
	}
	return t
}

func madeUpRow(bad, cached float64) *sim.Row {
	mean := 0.71 * math.Exp(bad)
	hit := cached * (1 - 0.12*bad)
	return &sim.Row{
		TTFTMean: mean, TTFTP50: 0.55 * mean, TTFTP90: 2.1 * mean, TTFTP99: 5.5 * mean,
		TPOTMean: 0.031 + 0.003*bad, TPOTP50: 0.029, TPOTP90: 0.043 + 0.003*bad, TPOTP99: 0.071 + 0.02*bad,
		E2EMean: 11 + mean, E2EP50: 8 + mean, E2EP90: 24 + mean, E2EP99: 60 + 5*mean,
		Goodput: 0.985 / (1 + 0.08*bad), HitHBM: 0.75 * hit, HitTier: 0.25 * hit, FollowupCached: 0.91 - 0.12*bad,
		LoadCoV: 0.071 + 0.2*bad, LoadMaxMean: 1.12 + 0.4*bad, MovedBytes: 3.1e12 * (1 - 0.1*bad), Preemptions: 12 + 30*bad,
		Failed: math.Floor(bad), PredictedError: 0.02, Requests: 12031, MakespanSeconds: 1790 + 20*bad,
	}
}

func madeUpPicture(name string, row *sim.Row, bad float64) *sim.Picture {
	r := clock.Rand(2, name)
	p := &sim.Picture{WindowSeconds: 10}
	const n = 201
	for i := range n {
		q := min(0.9985, max(0.0015, float64(i)/(n-1)))
		z := math.Sqrt2 * math.Erfinv(2*q-1)
		p.TTFT = append(p.TTFT, row.TTFTP50*math.Exp((0.75+0.08*bad)*z+0.12*z*max(z, 0)))
		p.TPOT = append(p.TPOT, row.TPOTP50*math.Exp(0.25*z+0.05*bad*z*max(z, 0)))
	}
	for i := range 179 {
		x := float64(i)
		wave := 0.55 + 0.2*math.Sin(x/25) + 0.1*r.NormFloat64()*0.4
		warm := 1 - math.Exp(-x/20)
		p.HitHBM = append(p.HitHBM, max(0, row.HitHBM*warm*(1+0.12*r.NormFloat64())))
		p.HitTier = append(p.HitTier, max(0, row.HitTier*warm*(1+0.2*r.NormFloat64())))
		p.LoadMean = append(p.LoadMean, min(1, max(0, wave)))
		p.LoadMin = append(p.LoadMin, max(0, wave-0.15-0.2*bad-0.05*r.Float64()))
		p.LoadMax = append(p.LoadMax, min(1, wave+0.12+0.2*bad+0.05*r.Float64()))
	}
	if bad < 1.2 {
		for i, term := range []string{"wait", "prefill", "load", "decode", "externality", "spread"} {
			p.Terms = append(p.Terms, sim.Term{Name: term, Micros: (1 + bad) * 310e3 / float64(1+i*i) * (0.8 + 0.4*r.Float64())})
		}
	}
	for speed := 0.5; speed <= 3; speed += 0.25 {
		p.Speeds = append(p.Speeds, speed)
		p.Goodput = append(p.Goodput, 1/(1+math.Exp(4*(speed-2.6+0.6*bad))))
	}
	return p
}

// suite is several scenarios of n policies.
func suite(n, seeds int) []*sim.Table {
	return []*sim.Table{madeUp("conversation", n, seeds), madeUp("agents-96", n, seeds), madeUp("fleet-240", n, seeds)}
}

// hostile has names that mean something to a terminal, CSV and HTML, and
// figures and pictures that are missing.
func hostile() *sim.Table {
	t := madeUp(`a,"b" <script>alert(1)</script> & 'c'`, 3, 3)
	evil := "</script><img src=x onerror=alert(1)>\x1b[31m"
	t.Policies[evil], t.Pictures[evil] = t.Policies["lmetric"], &sim.Picture{}
	t.Order = append(t.Order, evil)
	t.Versus = append(t.Versus, sim.Versus{Policy: evil, Than: `"`, Figure: "<b>", Ratio: 1, Low: 1, High: 1})
	for i := range t.Order {
		t.Policies[fmt.Sprintf("без-картинки-%d", i)] = madeUpRow(1, 0.3)
	}
	return t
}
