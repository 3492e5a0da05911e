package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rhizome-router/rhizome/sim"
)

// plotData is what the page's script draws from.
type plotData struct {
	Policies  []plotPolicy   `json:"policies"`
	Scenarios []plotScenario `json:"scenarios"`
}

// plotPolicy is a policy's looks, the same in every scenario.
type plotPolicy struct {
	Name  string `json:"name"`
	Hue   int    `json:"hue"`  // 0 is ours, and no other's
	Dash  int    `json:"dash"` // 0 to 2 for rules, 3 to 5 for fitted ones
	Shown bool   `json:"shown"`
}

type plotScenario struct {
	Name     string       `json:"name"`
	What     string       `json:"what"`
	Single   bool         `json:"single"`
	Bound    plotBound    `json:"bound"`
	Rows     []plotRow    `json:"rows"`
	Versus   []plotVersus `json:"versus"`
	GoalTTFT num          `json:"goal_ttft"` // seconds, 0: unknown
	GoalTPOT num          `json:"goal_tpot"`
}

type plotBound struct {
	TTFT   num `json:"ttft"`
	Cached num `json:"cached"`
}

// plotRow is one policy in one scenario. Intervals are half-widths.
type plotRow struct {
	Policy  int          `json:"p"`
	TTFT    plotSpan     `json:"ttft"`
	P50     num          `json:"p50"`
	P99     num          `json:"p99"`
	Goodput plotSpan     `json:"goodput"`
	HBM     num          `json:"hbm"`
	Tier    num          `json:"tier"`
	CoV     plotSpan     `json:"cov"`
	Failed  num          `json:"failed"`
	All     int64        `json:"requests"`
	Picture *plotPicture `json:"pic"`
}

type plotSpan struct {
	Value num `json:"v"`
	Half  num `json:"ci"`
}

type plotVersus struct {
	Policy string `json:"a"`
	Than   string `json:"b"`
	Figure string `json:"f"`
	Better int    `json:"better"`
	Ratio  num    `json:"r"`
	Low    num    `json:"lo"`
	High   num    `json:"hi"`
}

type plotPicture struct {
	TTFT    []num      `json:"ttft"`
	TPOT    []num      `json:"tpot"`
	Window  num        `json:"dt"`
	HBM     []num      `json:"hbm"`
	Tier    []num      `json:"tier"`
	Min     []num      `json:"min"`
	Mean    []num      `json:"mean"`
	Max     []num      `json:"max"`
	Terms   []plotTerm `json:"terms"`
	Speeds  []num      `json:"speeds"`
	Goodput []num      `json:"goodput"`
}

type plotTerm struct {
	Name   string `json:"n"`
	Micros num    `json:"v"`
}

// num is a number to four significant digits, or null.
type num float64

// MarshalJSON writes what no eye can tell from n.
func (n num) MarshalJSON() ([]byte, error) {
	if !known(float64(n)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, significant(float64(n), 4), 'g', -1, 64), nil
}

// points is the most a series is drawn with; more windows are taken together.
const points = 360

func newPlotData(tables []*sim.Table) plotData {
	looks := newLooks(tables)
	index := make(map[string]int)
	for i, p := range looks {
		index[p.Name] = i
	}
	d := plotData{Policies: looks}
	for _, t := range tables {
		s := plotScenario{
			Name: t.Scenario.Name, What: t.Scenario.Describe(), Single: single(t), Bound: plotBound{num(t.Bound.TTFTMean), num(t.Bound.Cached)},
			Versus: []plotVersus{}, GoalTTFT: num(t.Scenario.Goals.TTFT.Seconds()), GoalTPOT: num(t.Scenario.Goals.TPOT.Seconds()),
		}
		for _, name := range names(t) {
			r := t.Policies[name]
			span := func(figure string, v float64) plotSpan {
				half, ok := r.CI95[figure]
				if !ok || single(t) {
					half = math.NaN()
				}
				return plotSpan{num(v), num(half)}
			}
			s.Rows = append(s.Rows, plotRow{
				Policy: index[name], TTFT: span("ttft_mean_s", r.TTFTMean), P50: num(r.TTFTP50), P99: num(r.TTFTP99),
				Goodput: span("goodput", r.Goodput), HBM: num(r.HitHBM), Tier: num(r.HitTier), CoV: span("load_cov", r.LoadCoV),
				Failed: num(r.Failed), All: int64(math.Round(r.Requests)),
				Picture: newPlotPicture(t.Pictures[name]),
			})
		}
		for _, v := range t.Versus {
			s.Versus = append(s.Versus, newPlotVersus(v))
		}
		d.Scenarios = append(d.Scenarios, s)
	}
	return d
}

func newPlotVersus(v sim.Versus) plotVersus {
	out := plotVersus{Policy: v.Policy, Than: v.Than, Figure: v.Figure, Ratio: num(v.Ratio), Low: num(v.Low), High: num(v.High)}
	for _, f := range figures() {
		if f.name == v.Figure {
			out.Figure, out.Better = strings.TrimSpace(f.group+" "+f.head), f.better
		}
	}
	return out
}

func newPlotPicture(p *sim.Picture) *plotPicture {
	if p == nil {
		return nil
	}
	most := max(len(p.HitHBM), len(p.HitTier), len(p.LoadMin), len(p.LoadMean), len(p.LoadMax))
	every := max(1, (most+points-1)/points)
	mean := func(xs []float64) float64 {
		sum := 0.0
		for _, x := range xs {
			sum += x
		}
		return sum / float64(len(xs))
	}
	out := &plotPicture{
		TTFT: nums(p.TTFT), TPOT: nums(p.TPOT), Window: num(p.WindowSeconds * float64(every)),
		HBM: thin(p.HitHBM, every, mean), Tier: thin(p.HitTier, every, mean), Min: thin(p.LoadMin, every, slices.Min[[]float64]),
		Mean: thin(p.LoadMean, every, mean), Max: thin(p.LoadMax, every, slices.Max[[]float64]),
		Speeds: nums(p.Speeds), Goodput: nums(p.Goodput),
	}
	for _, term := range p.Terms {
		out.Terms = append(out.Terms, plotTerm{term.Name, num(term.Micros)})
	}
	return out
}

func nums(xs []float64) []num { return thin(xs, 1, func(x []float64) float64 { return x[0] }) }

// thin takes that many values together at a time.
func thin(xs []float64, every int, together func([]float64) float64) []num {
	out := []num{}
	for part := range slices.Chunk(xs, every) {
		out = append(out, num(together(part)))
	}
	return out
}

// hues is how many colours the page has for policies other than ours, dashes
// how many kinds of line for each, and as many again for fitted variants, and
// shownAtFirst how many policies it can show at once without confusing them.
const (
	hues         = 7
	dashes       = 3
	shownAtFirst = 8
)

// newLooks gives every policy a colour and a dash. A fitted variant of a rule
// has the colour of the rule and a dash of its own. When there are many, ours and those of
// the best mean rank are shown at first.
func newLooks(tables []*sim.Table) []plotPolicy {
	rank, times := make(map[string]float64), make(map[string]float64)
	for _, t := range tables {
		for i, name := range names(t) {
			rank[name] += float64(i)
			times[name]++
		}
	}
	var order []string
	for name := range rank { // order-free: sorted below
		order = append(order, name)
	}
	if _, ok := rank[sim.Ours]; ok {
		rank[sim.Ours] = -1
	}
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank[a]/times[a], rank[b]/times[b]), strings.Compare(a, b))
	})
	looks := make([]plotPolicy, len(order))
	nth := make(map[string]int) // of the rules
	for i, name := range order {
		looks[i] = plotPolicy{Name: name, Shown: i < shownAtFirst}
		if name == sim.Ours {
			continue
		}
		rule, variant := name, 0
		if base, ok := strings.CutSuffix(name, "-fitted"); ok && times[base] > 0 && base != sim.Ours {
			rule, variant = base, dashes
		}
		n, ok := nth[rule]
		if !ok {
			n = len(nth)
			nth[rule] = n
		}
		looks[i].Hue, looks[i].Dash = 1+n%hues, n/hues%dashes+variant
	}
	return looks
}
