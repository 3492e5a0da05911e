package testkit

import "testing"

const exposition = `# HELP a_busy how busy
# TYPE a_busy gauge
a_busy{m="x",n="y z"} 0
a_busy{m="x2"} 0
# TYPE b_total counter
b_total{code="2xx",m="x"} 3
b_total{code="5xx",m="x"} 1.5
b_total{code="5xx",m="x2"} 2
# TYPE c_below gauge
c_below -1
`

// deaf is a testing.TB that counts errors instead of failing.
type deaf struct {
	testing.TB
	errors int
}

func (d *deaf) Errorf(string, ...any) { d.errors++ }

func TestMetricSumsMatchingSeries(t *testing.T) {
	for _, c := range []struct {
		want   float64
		labels []string
	}{{6.5, nil}, {3.5, []string{`code="5xx"`}}, {1.5, []string{`code="5xx"`, `m="x"`}}, {0, []string{`m="z"`}}} {
		if got := Metric(t, exposition, "b_total", c.labels...); got != c.want {
			t.Errorf("sum over %v is %v, want %v", c.labels, got, c.want)
		}
	}
}

func TestIdleFindsWhatIsLeft(t *testing.T) {
	d := &deaf{TB: t}
	Idle(d, exposition, "a_busy")
	if d.errors != 1 {
		t.Errorf("%d complaints, want one about c_below", d.errors)
	}
	Idle(d, exposition, "c_below", "absent")
	if d.errors != 4 {
		t.Errorf("%d complaints, want three more", d.errors)
	}
}
