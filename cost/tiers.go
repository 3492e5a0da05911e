package cost

// load is the time to bring the lower tier's blocks up over a link that others
// use too: behind what it has to move first, where the engine tells that, else
// with the share of it that is left.
func (c *Class) load(l *Load, h Hit) float64 {
	if h.LowerTokens <= 0 {
		return 0
	}
	link := c.Links[h.Tier]
	if link.BytesPerMicro <= 0 {
		// No way up: what the tier holds will be computed after all. Price it
		// so, rather than as free.
		return c.TokenMicros * h.LowerTokens
	}
	micros := link.SetupMicros + h.LowerTokens*c.KVBytes/(link.BytesPerMicro*available(l.Rho[h.Tier]))
	if l.BacklogKnown[h.Tier] {
		micros = link.SetupMicros + (l.BacklogBytes[h.Tier]+h.LowerTokens*c.KVBytes)/link.BytesPerMicro
	}
	recompute := c.TokenMicros*h.LowerTokens + c.PairMicros*Pairs(h.LowerTokens, h.HBMTokens)
	return gated(micros, recompute, l.Closed[h.Tier])
}

// Engaged returns the part of a hit that the engine makes use of: by its load
// policy it computes what it does not load.
func (c *Class) Engaged(l *Load, h Hit) Hit {
	skip := false
	switch c.LoadPolicy {
	case LoadThreshold:
		skip = h.LowerTokens < c.LoadLeastTokens
	case LoadMin:
		skip = h.LowerTokens > 0 && c.load(l, h) > c.TokenMicros*h.LowerTokens+c.PairMicros*Pairs(h.LowerTokens, h.HBMTokens)
	}
	if skip {
		h.LowerTokens = 0
	}
	return h
}

// minAvailable is the least share of a link that a load is assumed to get.
const minAvailable = 0.02

// available is the share of a link of utilisation rho that a load gets.
func available(rho float64) float64 { return max(1-rho, minAvailable) }
