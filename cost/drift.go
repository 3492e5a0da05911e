package cost

// drift notices that errors keep to one side: a worker has become slower or
// faster. It is a two-sided Page-Hinkley test (E. S. Page, Continuous
// inspection schemes, Biometrika 41, 1954) of errors in standard deviations.
type drift struct {
	above, below float64
}

const (
	// driftSlack is how many standard deviations a lasting error may have
	// unnoticed.
	driftSlack = 1.0
	// driftLimit is the sum of what goes beyond that raises an alarm. Errors
	// without drift practically never reach it; six in a row that are three deviations off do.
	driftLimit = 12.0
	// driftBound is how much one error may say.
	driftBound = 3.0
)

// observe takes an error and reports an alarm, after which it starts over.
func (d *drift) observe(deviations float64) (alarm bool) {
	z := max(-driftBound, min(driftBound, deviations))
	d.above = max(0, d.above+z-driftSlack)
	d.below = max(0, d.below-z-driftSlack)
	if max(d.above, d.below) < driftLimit {
		return false
	}
	*d = drift{}
	return true
}
