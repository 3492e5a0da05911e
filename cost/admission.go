package cost

// admission is the wait until the earliest-finishing residents have freed the
// KV and the sequence slots that the request, and those queued ahead, need.
func (c *Class) admission(l *Load, r Request, h Hit, ahead, base, prefilling float64) float64 {
	needTokens := 0.0
	if c.CapacityTokens > 0 {
		needTokens = l.UniqueTokens + c.wanted(r, h) - c.fillable()
	}
	needSeqs := 0.0
	if c.MaxSeqs > 0 {
		needSeqs = l.Decoding + float64(l.QueuedSeqs) + max(1, r.Choices) - float64(c.MaxSeqs)
	}
	if needTokens <= 0 && needSeqs <= 0 {
		return 0
	}
	iterations := 0.0
	for _, res := range l.Residents {
		if needTokens <= 0 && needSeqs <= 0 {
			break
		}
		needTokens -= res.ExclusiveTokens
		needSeqs--
		iterations = max(iterations, c.Steps(res.RemainingTokens))
	}
	if (needTokens > 0 || needSeqs > 0) && l.Decoding > 0 {
		// Those known one by one are not enough: others hold the rest, and an
		// average one of them has to finish.
		iterations = max(iterations, c.Steps(l.RemainingTokens/max(1, l.Decoding)))
	}
	full := min(iterations, ahead)
	if c.Schedule == PrefillFirst {
		return ahead*prefilling + iterations*base // prompts first, and no token meanwhile
	}
	return full*prefilling + (iterations-full)*base
}

// wanted is the KV that must be free before the engine admits the request. What
// others in flight hold of it takes no room.
func (c *Class) wanted(r Request, h Hit) float64 {
	prompt := max(r.PromptTokens, r.HighTokens)
	switch c.Admit {
	case PerChunk:
		held := max(h.Tokens(), h.InUseTokens)
		return min(prompt, held+float64(c.BudgetTokens)) - h.InUseTokens
	case SGLangRatio:
		return prompt + max(1, r.Choices)*r.OutputTokens - h.InUseTokens
	}
	return prompt - h.InUseTokens
}

// watermark is the share of the KV pool up to which vLLM admits prompts.
const watermark = 0.95

// fillable is how much of the KV pool may be in use after an admission.
func (c *Class) fillable() float64 {
	if c.Admit == SGLangRatio {
		return c.CapacityTokens
	}
	return watermark * c.CapacityTokens
}

// Crowded reports whether a request might have to wait for room on a worker: only
// then need [Load.Residents] be known.
func (c *Class) Crowded(l *Load, r Request, h Hit) bool {
	return c.MaxSeqs > 0 && l.Decoding+float64(l.QueuedSeqs)+max(1, r.Choices) > float64(c.MaxSeqs) ||
		c.CapacityTokens > 0 && l.UniqueTokens+c.wanted(r, h) > 0.9*c.CapacityTokens
}
