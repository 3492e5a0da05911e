package prompt

import (
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// defaultTokensPerByte is the ratio assumed for a model whose responses have
// not told a prompt's size yet: English prose under today's vocabularies.
const defaultTokensPerByte = 0.25

// maxModels bounds how many models a Calibration tells apart.
const maxModels = 1024

// Calibration learns, per model, how many tokens a byte of prompt text makes
// and how large the prompts of late were, so that a text prompt's size can be
// guessed before an engine counts it. It is not safe for concurrent use.
type Calibration struct {
	models map[string]*modelSizes
	// Two generations of the sizes of whole prompts, by their last chunk's key.
	sizes, older map[kv.Key]promptSize
}

type modelSizes struct {
	tokensPerByte float64
	samples       int
	itemTokens    float64 // of a media item
	items         int     // samples of that
	variance      float64 // of log(actual/guess) of late
	guesses       int
	kept          float64 // share of answers that were cached when they came back
	answers       int
}

// promptSize is what an engine counted of one request.
type promptSize struct{ prompt, output int32 }

const (
	maxSizes = 1 << 16 // of a generation
	// maxLookBack is how many chunks back an earlier prompt is looked for.
	maxLookBack = 64
	// slowGain is that of averages once they have settled: over about the last
	// 50 prompts.
	slowGain = 0.02
)

// NewCalibration returns one that has learned nothing.
func NewCalibration() *Calibration {
	return &Calibration{models: make(map[string]*modelSizes), sizes: make(map[kv.Key]promptSize)}
}

// TokensPerByte returns the present ratio for a model and whether it was
// learned from its responses.
func (c *Calibration) TokensPerByte(model string) (tokensPerByte float64, learned bool) {
	if m, ok := c.models[model]; ok && m.samples > 0 {
		return m.tokensPerByte, true
	}
	return defaultTokensPerByte, false
}

// defaultItemTokens is assumed of an image, sound or video of a model whose
// responses told nothing yet: an image of 768 by 768 points under Qwen2-VL's 28
// by 28 patches.
const defaultItemTokens = 750

// ItemTokens returns the mean size of a media item of a model.
func (c *Calibration) ItemTokens(model string) float64 {
	if m, ok := c.models[model]; ok && m.items > 0 {
		return m.itemTokens
	}
	return defaultItemTokens
}

// of returns what is kept of a model, nil where there are too many.
func (c *Calibration) of(model string) *modelSizes {
	m := c.models[model]
	if m == nil && len(c.models) < maxModels {
		m = &modelSizes{}
		c.models[model] = m
	}
	return m
}

// Observe records what an engine counted of a request of which this guess was
// made: tokens of its prompts together, and of its answer.
func (c *Calibration) Observe(r *Request, guess float64, promptTokens, outputTokens int) {
	m := c.of(r.Model)
	textTokens := promptTokens - len(r.Tokens) - r.ExtraTokens
	if m == nil || promptTokens <= 0 || textTokens <= 0 {
		return
	}
	if guess > 0 && r.TextBytes > 0 {
		m.guesses++
		miss := math.Log(float64(promptTokens) / guess)
		m.variance += max(1/float64(m.guesses), slowGain) * (miss*miss - m.variance)
	}
	if n := len(r.chunks); n > 0 && r.Prompts == 1 {
		if len(c.sizes) >= maxSizes {
			c.older, c.sizes = c.sizes, make(map[kv.Key]promptSize)
		}
		c.sizes[r.chunks[n-1].Key] = promptSize{clamp32(promptTokens), clamp32(outputTokens)}
	}
	if r.MediaItems > 0 {
		if m.samples > 0 {
			each := (float64(textTokens) - m.tokensPerByte*float64(r.TextBytes)) / float64(r.MediaItems)
			m.items++
			m.itemTokens += max(1/float64(m.items), slowGain) * (max(0, each) - m.itemTokens)
		}
		return
	}
	// In short prompts a template's fixed tokens drown those of the text.
	if r.TextBytes < 256 {
		return
	}
	m.samples++
	m.tokensPerByte += max(1/float64(m.samples), slowGain) * (float64(textTokens)/float64(r.TextBytes) - m.tokensPerByte)
}

func clamp32(n int) int32 { return int32(max(0, min(n, maxCount))) }

// Size is what an engine counted of an earlier prompt that a prompt begins with.
type Size struct {
	Chunks                     int // how many of the prompt's; 0: there is none
	PromptTokens, OutputTokens int
	Answered                   bool // the prompt goes on with what the assistant said to it
	MediaItems                 int  // in it
}

// earlier returns the longest earlier prompt that r begins with, of those
// counted of late. A prompt is not its own beginning, unless it is repeated.
func (c *Calibration) earlier(r *Request) Size {
	for n := len(r.chunks); n > 0 && n > len(r.chunks)-maxLookBack; n-- {
		s, ok := c.sizes[r.chunks[n-1].Key]
		if !ok {
			if s, ok = c.older[r.chunks[n-1].Key]; !ok {
				continue
			}
		}
		size := Size{Chunks: n, PromptTokens: int(s.prompt), OutputTokens: int(s.output), MediaItems: r.MediaItems}
		for i := len(r.bounds) - 1; i >= 0 && r.bounds[i].chunk >= n-1; i-- {
			if r.bounds[i].chunk == n-1 {
				size.Answered, size.MediaItems = r.bounds[i].answered, r.bounds[i].items
			}
		}
		return size
	}
	return Size{}
}

// Ends appends to dst how many tokens r has up to the end of each chunk, and
// returns it, with the earlier prompt by which it knows. What lies between two
// places whose tokens are known is shared out by its bytes; what lies behind the
// last is guessed.
func (c *Calibration) Ends(r *Request, known Known, dst []float64) ([]float64, Size) {
	if len(r.chunks) == 0 {
		return dst, Size{}
	}
	perByte, _ := c.TokensPerByte(r.Model)
	earlier := c.earlier(r)
	type anchor struct {
		chunks int
		tokens float64
	}
	anchors := [2]anchor{{known.Chunks, float64(known.Tokens)}, {earlier.Chunks, float64(earlier.PromptTokens)}}
	if anchors[0].chunks > anchors[1].chunks {
		anchors[0], anchors[1] = anchors[1], anchors[0]
	}
	from, tokens, text := 0, 0.0, 0
	for _, a := range anchors {
		if a.chunks <= from || a.tokens <= tokens {
			continue
		}
		end := r.chunks[a.chunks-1].TextBytes
		slope := (a.tokens - tokens) / max(1, float64(end-text))
		for _, ch := range r.chunks[from:a.chunks] {
			dst = append(dst, tokens+slope*float64(ch.TextBytes-text))
		}
		dst[len(dst)-1] = a.tokens
		from, tokens, text = a.chunks, a.tokens, end
	}
	for _, ch := range r.chunks[from:] {
		dst = append(dst, tokens+perByte*float64(ch.TextBytes-text))
	}
	return dst, earlier
}

// PromptTokens guesses the tokens of all prompts in r, whose chunks end after so
// many tokens, of which an earlier one is the beginning.
func (c *Calibration) PromptTokens(r *Request, ends []float64, earlier Size) int {
	tokens := float64(len(r.Tokens) + r.ExtraTokens)
	chunked := 0
	if n := len(ends); n > 0 {
		tokens += ends[n-1]
		chunked = r.chunks[n-1].TextBytes
	}
	perByte, _ := c.TokensPerByte(r.Model)
	tokens += float64(r.TextBytes-chunked) * perByte
	if n := r.MediaItems - earlier.MediaItems; n > 0 {
		tokens += float64(n) * c.ItemTokens(r.Model)
	}
	return max(1, int(tokens+0.5))
}

// HighTokens returns what a prompt guessed at that many tokens has at most in 9
// of 10 cases, by how wrong the guesses were of late.
func (c *Calibration) HighTokens(model string, guess float64) float64 {
	const sigmas = 1.2816 // 90 % of a normal distribution lie below
	deviation := 0.25     // before anything is known
	if m := c.models[model]; m != nil && m.guesses > 0 {
		deviation = math.Sqrt(m.variance + (deviation*deviation)/float64(m.guesses))
	}
	return guess * math.Exp(sigmas*deviation)
}

// KeptTokens returns how many tokens of the answer to an earlier prompt are
// cached behind it for a prompt that gives the answer back. Whether they are
// depends on the template: one that leaves out thinking makes other tokens of
// it than were generated. It is found out per model from what was cached.
func (c *Calibration) KeptTokens(model string, s Size) int {
	if m := c.models[model]; m == nil || m.answers == 0 || m.kept <= 0.5 {
		return 0
	}
	return max(0, s.OutputTokens-1) // the last was never computed on
}

// ObserveKept records how many tokens of a prompt were cached that began with
// an earlier one and the answer to it, where so many tokens make a block.
func (c *Calibration) ObserveKept(model string, s Size, cachedTokens, blockTokens int) {
	m := c.of(model)
	if m == nil || s.Chunks == 0 || !s.Answered || s.OutputTokens < 2*blockTokens {
		return
	}
	beyond := cachedTokens - s.PromptTokens
	var kept float64
	switch {
	case beyond >= s.OutputTokens-2*blockTokens:
		kept = 1
	case beyond < -2*blockTokens || beyond > s.OutputTokens/2:
		return // something else was at work
	}
	m.answers++
	m.kept += max(1/float64(m.answers), 5*slowGain) * (kept - m.kept)
}
