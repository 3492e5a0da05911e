package fleet

import (
	"math/rand/v2"
	"testing"
)

func TestStepSizesFindTheBudget(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, budget := range []int{512, 2048, 8192} {
		var s stepSizes
		for range 300 {
			prompt := 500 + rnd.IntN(20_000)
			for ; prompt > 0; prompt -= budget {
				s.observe(min(prompt, budget) - rnd.IntN(40)) // decodes take some
			}
			if rnd.IntN(10) == 0 {
				s.observe(1000 + rnd.IntN(30_000)) // loaded from a lower tier, all at once
			}
		}
		if got := s.full(); got < budget*9/10 || got > budget*12/10 {
			t.Errorf("budget %d: a full step is taken for %d tokens", budget, got)
		}
	}
	var few stepSizes
	few.observe(2048)
	if got := few.full(); got != 0 {
		t.Errorf("one batch makes a budget of %d", got)
	}
}
