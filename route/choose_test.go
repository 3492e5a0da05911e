package route

import (
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/kv"
)

// candidates makes r choose among workers of given costs.
func candidates(h *house, costs ...float64) {
	h.cands = h.cands[:0]
	for i, micros := range costs {
		h.cands = append(h.cands, candidate{member: h.members[i], class: h.constants(h.members[i]), total: micros})
	}
	h.serving = len(costs)
}

// The widest margin makes the band.
func TestBandIsTheWidestMargin(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	for _, c := range []struct {
		name string
		m    Margins
		peer time.Duration
		want float64
	}{
		{"steps", Margins{Steps: 0.1, Share: 0.001}, 0, 590},
		{"share", Margins{Steps: 0.1, Share: 0.01}, 0, 1000},
		{"none", Margins{}, time.Second, 0},
		// Each worker is 0.4 busy with what this replica sends; 3 others send as
		// much, and in 10 ms 0.4·3·10 ms of it arrives unheard of.
		{"peers", Margins{Steps: 0.1, Share: 0.01, Peers: 1}, 10 * time.Millisecond, 12_000},
		{"half of peers", Margins{Steps: 0.1, Share: 0.01, Peers: 0.5}, 10 * time.Millisecond, 6000},
	} {
		h.cfg.NearTie = c.m
		h.SetPeers(3, c.peer)
		if c.peer == 0 {
			h.SetPeers(0, 0)
		}
		h.traffic = traffic{requests: 10, gapMicros: 1e6, workMicros: 0.8e6}
		candidates(h, 100_000, 100_000)
		if got := h.cheapest(0, "").tie.BandMicros; math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v µs, want %v", c.name, got, c.want)
		}
	}
}

// A temperature draws by e^(−cost/T), and 0 never draws a dearer worker.
func TestTemperature(t *testing.T) {
	h := newHouse(t, Rhizome, 3)
	h.cfg.TemperatureMicros = 1000
	const n = 20_000
	var drawn [3]float64
	for range n {
		candidates(h, 50_000, 51_000, 53_000)
		c := h.cheapest(0, "")
		if c.tie.Rule != ByTemperature {
			t.Fatalf("decided by %s", c.tie.Rule)
		}
		drawn[c.index]++
	}
	sum := 1 + math.Exp(-1) + math.Exp(-3)
	for i, above := range []float64{0, 1, 3} {
		p := math.Exp(-above) / sum
		if off := math.Abs(drawn[i]/n - p); off > 5*math.Sqrt(p*(1-p)/n) {
			t.Errorf("worker %d is drawn %v times of %d, want a share of %.3f", i, drawn[i], n, p)
		}
	}
	h.cfg.TemperatureMicros = 0
	for range 100 {
		candidates(h, 50_000, 51_000, 53_000)
		if c := h.cheapest(0, ""); c.index != 0 {
			t.Fatalf("worker %d without a temperature", c.index)
		}
	}
}

// Very different costs must not make a draw fail.
func TestTemperatureAtTheExtremes(t *testing.T) {
	h := newHouse(t, Rhizome, 2)
	for _, temperature := range []float64{1e-6, maxTemperatureMicros} {
		h.cfg.TemperatureMicros = temperature
		candidates(h, 1e12, 0)
		if c := h.cheapest(0, ""); temperature < 1 && c.index != 1 {
			t.Errorf("at T %v the dearer worker is drawn", temperature)
		}
	}
}

// Equal seeds draw equally.
func TestTemperatureIsSeeded(t *testing.T) {
	play := func() (out []kv.Target) {
		h := newHouse(t, Rhizome, 4)
		h.cfg.TemperatureMicros = 1e5
		for i := range 50 {
			d := h.decide(t, tokens(t, 0, 500, i))
			out = append(out, d.Target)
			h.finish(d, time.Millisecond)
		}
		return out
	}
	first, again := play(), play()
	targets := make(map[kv.Target]int)
	for i := range first {
		if first[i] != again[i] {
			t.Fatal("the same seed draws otherwise")
		}
		targets[first[i]]++
	}
	if len(targets) != 4 {
		t.Errorf("only %d of 4 workers are drawn", len(targets))
	}
}

func TestValidateMarginsAndTemperature(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.NearTie.Steps = -1 }, func(c *Config) { c.NearTie.Share = math.NaN() }, func(c *Config) { c.NearTie.Peers = math.Inf(1) },
		func(c *Config) { c.TemperatureMicros = -1 }, func(c *Config) { c.TemperatureMicros = 2e9 },
		func(c *Config) { c.Weights.Eviction = -1 }, func(c *Config) { c.Weights.HeadOfLineMicros = math.NaN() },
	} {
		c := DefaultConfig()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if c.Validate() == nil {
			t.Errorf("accepted: %+v", c)
		}
	}
}
