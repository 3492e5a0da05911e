package testkit

import (
	"strconv"
	"strings"
	"testing"
)

// Idle checks that a part of the house is back at rest. metrics is a text
// exposition in Prometheus' format: every gauge named must be there and zero
// in all its series, and no gauge at all may be below zero.
func Idle(t testing.TB, metrics string, gauges ...string) {
	t.Helper()
	seen := make(map[string]bool)
	isGauge := make(map[string]bool)
	for line := range strings.Lines(metrics) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			isGauge[f[2]] = f[3] == "gauge"
		}
	}
	for _, s := range parseSeries(t, metrics) {
		if !isGauge[s.name] {
			continue
		}
		seen[s.name] = true
		if s.value < 0 {
			t.Errorf("%s{%s} is %v, below zero", s.name, s.labels, s.value)
		}
	}
	for _, g := range gauges {
		if !seen[g] {
			t.Errorf("there is no gauge %s", g)
		}
		if v := Metric(t, metrics, g); v != 0 {
			t.Errorf("at rest %s is %v", g, v)
		}
	}
}

// Metric returns the sum of all series of that name in a text exposition whose
// labels include all of the given ones, each as `name="value"`.
func Metric(t testing.TB, metrics, name string, labels ...string) float64 {
	t.Helper()
	var sum float64
next:
	for _, s := range parseSeries(t, metrics) {
		if s.name != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(","+s.labels+",", ","+l+",") {
				continue next
			}
		}
		sum += s.value
	}
	return sum
}

type series struct {
	name, labels string
	value        float64
}

func parseSeries(t testing.TB, metrics string) []series {
	t.Helper()
	var all []series
	for line := range strings.Lines(metrics) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[cut+1:], 64)
		if cut < 0 || err != nil {
			t.Fatalf("not a line of metrics: %q", line)
		}
		name, labels, _ := strings.Cut(strings.TrimSuffix(line[:cut], "}"), "{")
		all = append(all, series{name, labels, v})
	}
	return all
}
