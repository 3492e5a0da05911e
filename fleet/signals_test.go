package fleet

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/kv"
)

func TestForeignLoadMustStay(t *testing.T) {
	var f foreign
	for i, c := range []struct{ scraped, own, want float64 }{
		{10, 2, 0}, {10, 2, 0}, {10, 2, 8}, // shows in three scrapes
		{3, 3, 0},            // gone at once
		{5, 3, 0}, {5, 3, 0}, // a gauge that lags
		{5, 3, 2}, {9, 2, 2}, // stays
		{2, 9, 0}, {10, 10, 0}, // never below zero
	} {
		if got := f.observe(c.scraped, c.own); got != c.want {
			t.Errorf("scrape %d: foreign %v, want %v", i, got, c.want)
		}
	}
}

func TestLinkUtilisation(t *testing.T) {
	var l link
	now := clock.Instant(0)
	step := func(bytes, seconds float64) float64 {
		now = now.Add(time.Second)
		return l.observe(now, l.bytes+bytes, l.seconds+seconds, true)
	}
	step(0, 0)
	for range 60 {
		step(5e9, 0.25)
	}
	if math.Abs(l.rho-0.25) > 0.01 || math.Abs(l.bytesPerMicro-20_000) > 1 {
		t.Errorf("busy a quarter of the time at 20 GB/s: rho %v, %v B/µs", l.rho, l.bytesPerMicro)
	}
	before := l.rho
	now = now.Add(time.Second)
	if got := l.observe(now, 10, 0.1, true); got != before {
		t.Errorf("a restarted engine's counters moved rho from %v to %v", before, got)
	}
	for range 60 {
		step(0, 0)
	}
	if l.rho > 0.001 {
		t.Errorf("an idle link has rho %v", l.rho)
	}
	for range 60 {
		step(40e9, 3) // two transfers at a time
	}
	if l.rho < 0.99 || l.rho > 1 {
		t.Errorf("an overloaded link has rho %v", l.rho)
	}
}

func TestLinkOfAnEngineThatCountsBytesOnly(t *testing.T) {
	var l link
	now := clock.Instant(0)
	for i := range 100 {
		now = now.Add(time.Second)
		bytes := 1e9
		if i == 3 {
			bytes = 10e9 // the most it ever moved
		}
		l.observe(now, l.bytes+bytes, 0, false)
	}
	if l.rho < 0.08 || l.rho > 0.13 {
		t.Errorf("a tenth of the best rate seen: rho %v", l.rho)
	}
}

func TestSignalsSayWhereTheyAreFrom(t *testing.T) {
	m := &Member{Class: cost.Class{CapacityTokens: 1000}}
	var x meter
	silent := x.observe(1, engine.RankTelemetry{}, m)
	if silent.CapacityTokens != (Signal{Value: 1000, Source: Configured}) || silent.MaxSeqs != (Signal{Value: 256}) || silent.Running.Source != Default {
		t.Errorf("a worker that says nothing: %+v", silent)
	}
	says := func(v float64) engine.Value { return engine.Value{Value: v, Known: true} }
	told := engine.RankTelemetry{Running: says(300), Waiting: says(10), HBMTokens: says(450_000), ExternalHitsTokens: says(100)}
	told.Tiers[kv.CPU] = engine.TierTelemetry{LoadBytes: says(100 * 131072), LoadSeconds: says(1)}
	m.Ledger.Book(0, &Booking{})
	var s Signals
	for i := range 4 {
		s = x.observe(clock.Instant(time.Duration(i+2)*time.Second), told, m)
	}
	if s.CapacityTokens.Value != 450_000 || s.CapacityTokens.Source != Scraped || s.CapacityTokens.At != clock.Instant(5*time.Second) {
		t.Errorf("capacity: %+v", s.CapacityTokens)
	}
	if s.MaxSeqs.Value != 300 {
		t.Errorf("300 running while others wait, but max seqs is %+v", s.MaxSeqs)
	}
	if s.ForeignRunning.Value+s.ForeignWaiting.Value != 309 || s.ForeignWaiting.Value != 10 {
		t.Errorf("of 310 requests one is ours: foreign %v + %v", s.ForeignRunning.Value, s.ForeignWaiting.Value)
	}
	if s.KVBytes.Value != 131072 || s.KVBytes.Source != Learned {
		t.Errorf("KV bytes: %+v", s.KVBytes)
	}
	raw, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(raw), `"capacity_tokens":{"value":450000,"source":"scraped","at_nanos":5000000000}`) {
		t.Errorf("%v: %s", err, raw)
	}
	var back Signals
	if err := json.Unmarshal(raw, &back); err != nil || back != s {
		t.Errorf("JSON does not come back: %v", err)
	}
}

func TestBootWatch(t *testing.T) {
	var b bootWatch
	says := func(v float64) engine.Value { return engine.Value{Value: v, Known: true} }
	for i, c := range []struct {
		started   engine.Value
		restarted bool
		before    clock.Instant
	}{{engine.Value{}, false, 0}, {says(7), false, 0}, {engine.Value{}, false, 2}, {says(7), false, 2}, {says(9), true, 4}, {says(9), false, 5}} {
		if restarted, before := b.observe(clock.Instant(i+1), c.started); restarted != c.restarted || before != c.before {
			t.Errorf("look %d: restarted %v, before %v", i, restarted, before)
		}
	}
}

func TestSignalAge(t *testing.T) {
	now := clock.Instant(10 * time.Second)
	if got := (Signal{Source: Scraped, At: clock.Instant(7 * time.Second)}).Age(now); got != 3*time.Second {
		t.Errorf("age %v", got)
	}
	if got := (Signal{Source: Default}).Age(now); got != 0 {
		t.Errorf("a default is %v old", got)
	}
}

// The mean step of a window is that of the counters' differences; a process
// that starts over, or an idle one, says nothing.
func TestStepsFromCounters(t *testing.T) {
	var c stepCounters
	know := func(v float64) engine.Value { return engine.Value{Value: v, Known: true} }
	look := func(second int, tokens, seconds, prefilled, running float64) Steps {
		return c.observe(clock.Instant(time.Duration(second)*time.Second), &engine.RankTelemetry{
			InterTokens: know(tokens), InterTokenSeconds: know(seconds), PrefilledTokens: know(prefilled), Running: know(running)})
	}
	if s := look(1, 1000, 20, 500, 10); s != (Steps{}) {
		t.Errorf("the first look: %+v", s)
	}
	want := Steps{Micros: 30_000, Sequences: 15, PrefillTokens: 60, Count: 20, At: clock.Instant(2 * time.Second)}
	if s := look(2, 1300, 29, 1700, 20); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	for name, s := range map[string]Steps{
		"too few tokens": look(3, 1310, 29.5, 1700, 20), "a new process": look(4, 300, 2, 10, 20), "idle": look(5, 900, 12, 10, 0),
	} {
		if s != want {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := c.observe(0, &engine.RankTelemetry{Running: know(3)}); s != want {
		t.Errorf("no counters: %+v", s)
	}
}
