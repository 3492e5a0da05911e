package prompt

// defaultTokensPerByte is the ratio assumed for a model whose responses have
// not told a prompt's size yet: English prose under today's vocabularies.
const defaultTokensPerByte = 0.25

// maxModels bounds how many models a Calibration tells apart.
const maxModels = 1024

// Calibration learns, per model, how many tokens a byte of prompt text makes,
// so that a text prompt's size can be guessed before an engine counts it. It
// is not safe for concurrent use.
type Calibration struct {
	ratio map[string]ratio
}

type ratio struct {
	tokensPerByte float64
	samples       int
}

// NewCalibration returns one that has learned nothing.
func NewCalibration() *Calibration { return &Calibration{ratio: make(map[string]ratio)} }

// TokensPerByte returns the present ratio for a model and whether it was
// learned from its responses.
func (c *Calibration) TokensPerByte(model string) (tokensPerByte float64, learned bool) {
	if r, ok := c.ratio[model]; ok {
		return r.tokensPerByte, true
	}
	return defaultTokensPerByte, false
}

// Observe records that a prompt of textBytes bytes had promptTokens tokens.
// Prompts under 256 bytes are ignored: a template's fixed tokens drown theirs.
func (c *Calibration) Observe(model string, textBytes, promptTokens int) {
	if textBytes < 256 || promptTokens <= 0 {
		return
	}
	r, known := c.ratio[model]
	if !known && len(c.ratio) >= maxModels {
		return
	}
	r.samples++
	// A plain mean at first, then an average over about the last 50 prompts.
	gain := max(1/float64(r.samples), 0.02)
	r.tokensPerByte += gain * (float64(promptTokens)/float64(textBytes) - r.tokensPerByte)
	c.ratio[model] = r
}

// PromptTokens guesses the tokens of all prompts in r.
func (c *Calibration) PromptTokens(r *Request) int {
	if r.TextBytes == 0 {
		return max(1, len(r.Tokens)+r.ExtraTokens)
	}
	perByte, _ := c.TokensPerByte(r.Model)
	return max(1, len(r.Tokens)+r.ExtraTokens+int(float64(r.TextBytes)*perByte+0.5))
}
