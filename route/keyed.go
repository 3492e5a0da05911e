package route

// Keyed says what named the parts of a prompt when it was placed: what a hit on
// the chosen worker could be known by.
type Keyed uint8

const (
	// ByTokens: the prompt is token ids, which the worker's KV events name.
	ByTokens Keyed = iota
	// ByLearned: a text of whose tokens some, at least, were learned.
	ByLearned
	// ByTokenize: a text whose tokens a worker was asked for.
	ByTokenize
	// ByBytes: by its bytes, or by token ids where no KV events come: by what was
	// sent there.
	ByBytes
	// BySessionLast: by where its session was, nothing else being known.
	BySessionLast
	numKeyed
)

// String returns the name used in metrics and explanations.
func (k Keyed) String() string {
	return [...]string{"tokens", "learned", "tokenize", "bytes", "session"}[k]
}

// keyed says it of a candidate.
func (c *candidate) keyed() Keyed {
	switch {
	case c.source == fromSession:
		return BySessionLast
	case c.form.BlockTokens > 0:
		return ByTokens
	case c.known.Told:
		return ByTokenize
	case len(c.known.Keys) > 0:
		return ByLearned
	}
	return ByBytes
}
