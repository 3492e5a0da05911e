package cost

import "testing"

// Admission is priced by what a guessed prompt has at most, prefill by its mean.
func TestAdmissionMindsHighGuesses(t *testing.T) {
	c := Generic()
	c.CapacityTokens = 10_000
	l := Load{UniqueTokens: 8000, Decoding: 1, Residents: []Resident{{RemainingTokens: 100, ExclusiveTokens: 8000}}}
	low := Request{PromptTokens: 1000, OutputTokens: 10, Choices: 1}
	high := low
	high.HighTokens = 2000
	a, b := Score(&c, &l, low, Hit{}, Weights{}), Score(&c, &l, high, Hit{}, Weights{})
	if a.AdmissionMicros != 0 || b.AdmissionMicros <= 0 || a.PrefillMicros != b.PrefillMicros {
		t.Errorf("sure: %+v, guessed: %+v", a, b)
	}
	for _, mode := range []Admission{WholePrompt, PerChunk, SGLangRatio} {
		c.Admit = mode
		if c.wanted(high, Hit{}) < c.wanted(low, Hit{}) {
			t.Errorf("%v: a prompt that may be longer wants less", mode)
		}
	}
}
