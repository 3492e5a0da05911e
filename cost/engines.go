package cost

import (
	"fmt"
	"strconv"
	"strings"
)

// Schedule says what an iteration may hold.
type Schedule uint8

const (
	// Mixed: decodes and prefill chunks together (vLLM).
	Mixed Schedule = iota
	// PrefillFirst: while there is a prompt to compute, decodes wait (SGLang's
	// default).
	PrefillFirst
)

// Admission says what KV an engine wants free before it takes a request on.
type Admission uint8

const (
	// WholePrompt: that of the whole prompt, under the watermark (vLLM).
	WholePrompt Admission = iota
	// PerChunk: that of its first chunk (vLLM V1 without the reserve for the
	// full input).
	PerChunk
	// SGLangRatio: that of the prompt and of what is expected to be put out, in
	// the whole pool. SGLang reserves a varying share of the output limits of
	// those that run; the ledger's expected outputs stand for it.
	SGLangRatio
)

// LoadPolicy says what an engine does with a hit on a lower tier. The router
// does not choose it.
type LoadPolicy uint8

const (
	// LoadAlways: every matched token is loaded. What engines do.
	LoadAlways LoadPolicy = iota
	// LoadThreshold: from Class.LoadLeastTokens on; fewer are computed.
	LoadThreshold
	// LoadMin: whatever is faster, loading or computing. For engines that can
	// be made to skip a load.
	LoadMin
)

// Steps returns how many iterations that many tokens of one sequence take.
func (c *Class) Steps(tokens float64) float64 { return tokens / max(1, c.TokensPerStep) }

var admissionNames = [...]string{"whole_prompt", "per_chunk", "sglang_ratio"}

// ParseAdmission returns the admission of a name: whole_prompt, per_chunk or
// sglang_ratio.
func ParseAdmission(s string) (Admission, error) {
	for i, name := range admissionNames {
		if name == s {
			return Admission(i), nil
		}
	}
	return 0, fmt.Errorf("unknown admission %q: want one of %s", s, strings.Join(admissionNames[:], ", "))
}

// ParseLoadPolicy returns the load policy of a name, and the least number of
// tokens that a threshold loads: always, threshold:N or min.
func ParseLoadPolicy(s string) (p LoadPolicy, leastTokens float64, err error) {
	switch s {
	case "always":
		return LoadAlways, 0, nil
	case "min":
		return LoadMin, 0, nil
	}
	digits, ok := strings.CutPrefix(s, "threshold:")
	n, err := strconv.ParseUint(digits, 10, 31)
	if !ok || err != nil {
		return 0, 0, fmt.Errorf("unknown load policy %q: want always, threshold:N (N tokens) or min", s)
	}
	return LoadThreshold, float64(n), nil
}
