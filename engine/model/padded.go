package model

// Padded is a Linear engine that runs captured CUDA graphs: a batch costs as
// much as the next larger size for which there is one. Sizes are those that
// vLLM captures by default (compilation config, cudagraph_capture_sizes): 1, 2,
// 4 and the multiples of 8 up to 256; larger batches run without a graph and
// are not padded. Prompt tokens are padded to PrefillTile, as the tiles of
// matrix kernels are.
type Padded struct{ Linear }

// PrefillTile is the multiple to which Padded rounds prompt tokens up.
const PrefillTile = 128

// largestGraph is the largest batch for which there is a graph.
const largestGraph = 256

// Iteration implements Timing.
func (t Padded) Iteration(l Load) float64 {
	tiles := (l.PrefillTokens + PrefillTile - 1) / PrefillTile
	return t.Linear.Iteration(l) + t.padding(l) + t.E*float64(tiles*PrefillTile-l.PrefillTokens)
}

// Decodes implements Timing: padding adds the same to every iteration.
func (t Padded) Decodes(l Load, k int) float64 {
	return t.Linear.Decodes(l, k) + float64(k)*t.padding(l)
}

// padding returns what the missing sequences of a graph cost.
func (t Padded) padding(l Load) float64 {
	return t.B * float64(graphSize(l.Decoding)-l.Decoding)
}

// graphSize returns the size of the graph that runs a batch.
func graphSize(batch int) int {
	switch {
	case batch <= 2 || batch > largestGraph:
		return batch
	case batch <= 4:
		return 4
	}
	return (batch + 7) / 8 * 8
}
