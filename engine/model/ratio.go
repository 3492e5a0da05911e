package model

// SGLang reserves room for what sequences have yet to put out: of those that
// decode a share of what they may put out at most, of new ones all of it. The
// share starts at 0.7, falls with every decode step to a floor, goes up to what
// was really put out when the pool ran out nevertheless, and starts over when
// the engine is idle (python/sglang/srt: global_config.py,
// managers/schedule_policy.py PrefillAdder, managers/schedule_batch.py
// retract_decode).
//
// The sequence that gives way when the pool runs out is the newest here, as in
// vLLM; SGLang takes the one with the fewest tokens out, which mostly is the
// same.
const (
	initialRatio     = 0.7
	lowestRatio      = 0.7 * 0.14
	ratioDecaySteps  = 600
	retractSteps     = 20   // decode steps for which a retraction makes room
	maxPromisedToken = 4096 // of a sequence, whatever it may put out
)

// tokenRatio is the share.
type tokenRatio struct {
	value float64
	since int64 // decode step at which it had that value
}

// at returns the share at a decode step.
func (r tokenRatio) at(step int64) float64 {
	const decay = (initialRatio - lowestRatio) / ratioDecaySteps
	return max(lowestRatio, r.value-decay*float64(step-r.since))
}

// NewTokenRatio returns the share of the output limits of running sequences
// that Config.Admit SGLangRatio reserves.
func (w *Worker) NewTokenRatio() float64 { return w.ratio.at(w.steps) }

// retracted sets the share after a preemption.
func (w *Worker) retracted() {
	out, limit := 0, 1
	for _, s := range w.running {
		if s.state == decoding {
			out += w.out(s) + retractSteps
			limit += s.maxTokens()
		}
	}
	w.ratio = tokenRatio{value: min(1, float64(out)/float64(limit)), since: w.steps}
}

// roomFor reports whether SGLang would admit s, which has the given output
// room of its own and of all others to respect, when so many blocks were in
// use.
func (w *Worker) roomFor(s *seq, used int) bool {
	if used > w.pool.capacity {
		return false
	}
	if len(w.running) == 0 {
		return true // what it may put out does not matter then
	}
	ratio := w.NewTokenRatio()
	promised := float64(w.promised(s))
	for _, o := range w.running {
		if o.state == decoding {
			promised += ratio * float64(w.promised(o))
		} else {
			promised += float64(w.promised(o))
		}
	}
	return float64(used*w.cfg.BlockTokens)+promised < float64(w.pool.capacity*w.cfg.BlockTokens)
}

// promised returns how many more tokens s may put out.
func (w *Worker) promised(s *seq) int {
	return min(s.maxTokens()-w.out(s), maxPromisedToken)
}
