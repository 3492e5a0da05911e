package policy

// The constants below are what the optimiser of Rhizome's own rates found for
// each tunable rule, with the same budget on the same work (set A, the whole
// conversation trace, seed 1, 32 settings), in the order of the rule's Params:
//
//	rhizome-lab tune --policy NAME --trace conversation_trace.jsonl --budget 32

func fittedLMetric() []float64     { return []float64{0.7388, 0.1624, 0.4069, 0.5928} }
func fittedDynamo() []float64      { return []float64{69.41, 2.124, 0.3242, 0.1415, 57.04, 0} }
func fittedLLMDPrecise() []float64 { return []float64{2.182, 1.834, 0.981, 1, 0.6197} }
func fittedSGLRouter() []float64   { return []float64{2154, 0.09709, 4.9, 81.76, 584.2, 960.8, 1.352} }
