package fleet

import (
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
)

// TestBR46_SeveralEnginesBehindOneAddress: a process that is younger than the
// one before is a restart; one that is older was there all the time.
func TestBR46_SeveralEnginesBehindOneAddress(t *testing.T) {
	var b bootWatch
	for i, step := range []struct {
		started            engine.Value
		restarted, several bool
	}{
		{engine.Value{}, false, false},
		{engine.Value{Value: 100, Known: true}, false, false},
		{engine.Value{}, false, false},
		{engine.Value{Value: 100, Known: true}, false, false},
		{engine.Value{Value: 200, Known: true}, true, false},
		{engine.Value{Value: 100, Known: true}, true, true},
		{engine.Value{Value: 100, Known: true}, false, true},
	} {
		restarted, _ := b.observe(clock.Instant(i), step.started)
		if restarted != step.restarted || b.several != step.several {
			t.Errorf("look %d: restarted %v, several %v", i, restarted, b.several)
		}
	}
}
