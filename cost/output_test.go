package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestOutputLengthLearnsByKey(t *testing.T) {
	o := NewOutputLength()
	key := func(tenant, tool string, head uint64) OutputKey {
		return OutputKey{Model: "m", Tenant: tenant, Head: 0, Tool: tool, PromptTokens: int(1000 + head)}
	}
	if d := o.Predict(key("a", "", 0), 0); d != 200 {
		t.Errorf("cold: %v", d)
	}
	if d := o.Predict(key("a", "", 0), 32); d != 32 {
		t.Errorf("cold with a limit: %v", d)
	}
	if u := o.Upper(key("a", "", 0), 0.9, 0); math.Abs(u-800) > 1 {
		t.Errorf("cold p90: %v", u)
	}
	for range 300 {
		o.Observe(key("a", "search", 0), 50)
		o.Observe(key("a", "write", 0), 1500)
		o.Observe(key("b", "", 0), 10)
	}
	for _, c := range []struct {
		k           OutputKey
		least, most float64
	}{
		{key("a", "search", 0), 45, 250}, {key("a", "write", 0), 1300, 1600}, {key("b", "", 0), 8, 60},
		{key("c", "", 0), 300, 700}, // the model's mean
	} {
		if d := o.Predict(c.k, 0); d < c.least || d > c.most {
			t.Errorf("%+v: %v, want %v to %v", c.k, d, c.least, c.most)
		}
	}
	if d := o.Predict(key("a", "write", 0), 100); d > 100 {
		t.Errorf("limit of 100: %v", d)
	}
}

// Nine in ten answers must be under the bound for nine in ten, about.
func TestOutputUpperCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	o := NewOutputLength()
	k := OutputKey{Model: "m"}
	under, n := 0, 4000
	for i := range n {
		tokens := int(math.Exp(5 + 1.2*rng.NormFloat64()))
		if i >= n/2 && float64(tokens) <= o.Upper(k, 0.9, 0) {
			under++
		}
		o.Observe(k, tokens)
	}
	if share := float64(under) / float64(n/2); share < 0.87 || share > 0.94 {
		t.Errorf("covers %.3f", share)
	}
}

func TestOutputSketchesAreBounded(t *testing.T) {
	o := NewOutputLength()
	for i := range 30_000 {
		o.Observe(OutputKey{Model: "m", Tenant: fmt.Sprint(i)}, 10)
	}
	if n := o.Sketches(); n > 2*maxSketches {
		t.Errorf("%d sketches", n)
	}
	if d := o.Predict(OutputKey{Model: "m"}, 0); d > 15 {
		t.Errorf("the model's own sketch was forgotten: %v", d)
	}
}

func TestHistogramQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfN(rapid.Float64Range(1, 1e5), 1, 200).Draw(t, "x")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		var h histogram
		for _, x := range xs {
			h.add(x, 1000)
		}
		slices.Sort(xs)
		want := xs[max(0, int(math.Ceil(q*float64(len(xs))-1e-9))-1)]
		if got := h.quantile(q); got < want/1.1 || got > want*1.1 {
			t.Fatalf("quantile %v of %v is %v, want %v", q, xs, got, want)
		}
		if m := h.mean(math.Inf(1)); m < xs[0]/1.1 || m > xs[len(xs)-1]*1.1 {
			t.Fatalf("mean %v of %v", m, xs)
		}
	})
}

func TestHistogramForgets(t *testing.T) {
	var h histogram
	for range 1000 {
		h.add(10, 100)
	}
	for range 300 {
		h.add(1000, 100)
	}
	if q := h.quantile(0.2); q < 900 || h.weight > 101 {
		t.Errorf("quantile %v of weight %v", q, h.weight)
	}
}

func TestGate(t *testing.T) {
	var g Gate
	if g.Open() != 1 {
		t.Error("closed from the start")
	}
	for range 3 {
		g.Observe(0.9)
	}
	if g.Open() != 0.125 {
		t.Errorf("open to %v after three congested scrapes", g.Open())
	}
	for range 20 {
		g.Observe(0.9)
	}
	if g.Open() <= 0 {
		t.Error("never opens again")
	}
	for range 10 {
		g.Observe(0.85)
	}
	if g.Open() != 1 {
		t.Errorf("open to %v after a quiet time", g.Open())
	}
}

// A closed gate prices a hit as if it were computed, if that takes longer, and
// never below its load.
func TestGatedHits(t *testing.T) {
	c := Generic()
	r := Request{PromptTokens: 8000, Choices: 1}
	h := Hit{LowerTokens: 7000, Tier: 1}
	open, closed := Load{}, Load{}
	closed.Closed[1] = 1
	cheap, dear := Score(&c, &open, r, h, Weights{}), Score(&c, &closed, r, h, Weights{})
	if want := c.TokenMicros*7000 + c.PairMicros*Pairs(7000, 0); math.Abs(dear.LoadMicros-want) > 1e-6 || cheap.LoadMicros >= want {
		t.Errorf("open %v, closed %v, want %v", cheap.LoadMicros, dear.LoadMicros, want)
	}
	open.Rho[1], closed.Rho[1] = 0.99, 0.99
	c.Links[1].BytesPerMicro = 1000
	cheap, dear = Score(&c, &open, r, h, Weights{}), Score(&c, &closed, r, h, Weights{})
	if cheap.LoadMicros != dear.LoadMicros {
		t.Errorf("a slow load costs %v open and %v closed", cheap.LoadMicros, dear.LoadMicros)
	}
	a := DefaultArticle()
	if o, x := a.Score(&ArticleLoad{}, r, h).TierMicros, a.Score(&ArticleLoad{Closed: closed.Closed}, r, h).TierMicros; x != 7000 || o >= x {
		t.Errorf("article: open %v, closed %v", o, x)
	}
}
