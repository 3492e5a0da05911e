package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
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

func TestSignalAge(t *testing.T) {
	now := clock.Instant(10 * time.Second)
	if got := (Signal{Source: Scraped, At: clock.Instant(7 * time.Second)}).Age(now); got != 3*time.Second {
		t.Errorf("age %v", got)
	}
	if got := (Signal{Source: Default}).Age(now); got != 0 {
		t.Errorf("a default is %v old", got)
	}
}
