package sim

import "slices"

// quantileSteps is how finely a picture draws distributions.
const quantileSteps = 200

// picture draws what the plots of a report need.
func (r *record) picture() *Picture {
	p := &Picture{WindowSeconds: windowMicros / 1e6}
	var ttft, tpot []float64
	var prompt []float64
	for i := range r.samples {
		s := &r.samples[i]
		if s.failed {
			continue
		}
		ttft = append(ttft, s.ttft/1e6)
		if s.output > 1 {
			tpot = append(tpot, s.tpot()/1e6)
		}
		n := int(s.arrived / windowMicros)
		for len(prompt) <= n {
			prompt, p.HitHBM, p.HitTier = append(prompt, 0), append(p.HitHBM, 0), append(p.HitTier, 0)
		}
		prompt[n] += float64(s.prompt)
		p.HitHBM[n] += float64(s.hbm)
		p.HitTier[n] += float64(s.tier)
	}
	for i, whole := range prompt {
		p.HitHBM[i], p.HitTier[i] = share(p.HitHBM[i], whole), share(p.HitTier[i], whole)
	}
	p.TTFT, p.TPOT = steps(ttft), steps(tpot)
	for _, window := range r.busy {
		mean := 0.0
		for _, b := range window {
			mean += b / float64(len(window))
		}
		p.LoadMin = append(p.LoadMin, slices.Min(window)/windowMicros)
		p.LoadMean = append(p.LoadMean, mean/windowMicros)
		p.LoadMax = append(p.LoadMax, slices.Max(window)/windowMicros)
	}
	p.Terms = r.terms.mean()
	return p
}

// steps returns quantiles at equal steps from 0 to 1 inclusive.
func steps(x []float64) []float64 {
	if len(x) == 0 {
		return nil
	}
	slices.Sort(x)
	out := make([]float64, quantileSteps+1)
	for i := range out {
		out[i] = quantile(x, float64(i)/quantileSteps)
	}
	return out
}

// termSums sums the parts of chosen workers' costs, which always come in the
// same order.
type termSums struct {
	sums []Term
	n    float64
}

func (t *termSums) add(terms []Term) {
	if t.sums == nil {
		t.sums = make([]Term, len(terms))
	}
	for i, x := range terms {
		t.sums[i].Name = x.Name
		t.sums[i].Micros += x.Micros
	}
	t.n++
}

func (t *termSums) mean() []Term {
	var out []Term
	for _, x := range t.sums {
		if x.Micros > 0 {
			out = append(out, Term{Name: x.Name, Micros: x.Micros / t.n})
		}
	}
	return out
}
