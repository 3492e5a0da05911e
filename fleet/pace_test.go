package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

func TestPace(t *testing.T) {
	var p Pace
	for s := range 600 {
		p.Observe(clock.Instant(time.Duration(s)*time.Second), uint64(5000*s))
	}
	if got := p.Observe(clock.Instant(600*time.Second), 3_000_000); math.Abs(got-0.005) > 1e-6 {
		t.Errorf("%v tokens a µs, want 0.005", got)
	}
	if got := p.Observe(clock.Instant(601*time.Second), 0); math.Abs(got-0.005) > 1e-6 {
		t.Errorf("%v tokens a µs after the clock started anew", got)
	}
	if got := p.Observe(clock.Instant(631*time.Second), 0); math.Abs(got-0.0025) > 1e-5 {
		t.Errorf("%v tokens a µs after a half-life of nothing", got)
	}
}

func TestPressure(t *testing.T) {
	var reuse cost.Reuse
	for range 90 {
		reuse.Left()
		reuse.Again(1e6)
	}
	full := Cache{Known: ByEvents}
	full.Evicting[kv.HBM] = true
	filling := Cache{Known: ByEvents}
	filling.HeldTokens[kv.HBM] = 30_000
	forever := index.Horizon{HBM: math.MaxUint64}
	for _, x := range []struct {
		name     string
		c        Cache
		h        index.Horizon
		capacity float64
		want     cost.Pressure
	}{
		{"nothing known", Cache{}, forever, 0, cost.Pressure{UnusedTokens: math.MaxFloat64, ContextTokens: 500}},
		{"filling up", filling, forever, 100_000, cost.Pressure{UnusedTokens: 70_000, ContextTokens: 500}},
		{"HBM alone, full", full, index.Horizon{HBM: 100_000}, 100_000,
			cost.Pressure{ReuseProbability: 0.9, ContextTokens: 500, LifeMicros: 2e7}},
		{"with a tier", full, index.Horizon{HBM: 100_000, Total: 500_000, Lower: kv.CPU}, 100_000,
			cost.Pressure{ReuseProbability: 0.9, ContextTokens: 500, Spill: kv.CPU, LifeMicros: 1e8}},
		{"a tier that is not full", full, index.Horizon{HBM: 100_000, Total: math.MaxUint64, Lower: kv.CPU}, 100_000,
			cost.Pressure{ReuseProbability: 0.9, ContextTokens: 500, Spill: kv.CPU}},
		{"by what was sent", Cache{Known: BySent}, index.Horizon{Now: 60_000, HBM: 100_000}, 100_000,
			cost.Pressure{UnusedTokens: 40_000, ReuseProbability: 0.9, ContextTokens: 500, LifeMicros: 2e7}},
	} {
		if got := PressureOf(&x.c, x.h, x.capacity, 0.005, &reuse, 500); got != x.want {
			t.Errorf("%s: %+v, want %+v", x.name, got, x.want)
		}
	}
}
