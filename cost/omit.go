package cost

// Omit names terms that a laboratory leaves out of a cost, to see what each is
// worth; terms with a weight of their own are left out by that. The zero value
// leaves out nothing.
type Omit uint8

// The terms.
const (
	OmitQueue     Omit = 1 << iota
	OmitAdmission      // waiting for room
	OmitLoad           // loads from lower tiers
	OmitPairs          // what makes prefill quadratic, of the request and of those ahead
	OmitWorkflow
	OmitUnsure // that promises may be broken, and that they take time
	OmitClock  // that the virtual clock may say more of a queue than its tokens
)

// Score is [Score] without the terms of o.
func (o Omit) Score(c *Class, l *Load, r Request, h Hit, w Weights) Terms {
	if o == 0 {
		return Score(c, l, r, h, w)
	}
	class, load := *c, *l
	if o&OmitPairs != 0 {
		class.PairMicros, load.QueuedPairs = 0, 0
	}
	if o&OmitWorkflow != 0 {
		r.Return = Return{}
	}
	if o&OmitUnsure != 0 {
		h.UnsureTokens, h.ProducerMicros = 0, 0
	}
	if o&OmitClock != 0 {
		load.LateMicros = 0
	}
	t := Score(&class, &load, r, h, w)
	if o&OmitQueue != 0 {
		t.QueueMicros = 0
	}
	if o&OmitAdmission != 0 {
		t.AdmissionMicros = 0
	}
	if o&OmitLoad != 0 {
		t.LoadMicros = 0
	}
	return t
}
