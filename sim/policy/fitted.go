package policy

// The constants below are what the optimiser of Rhizome's own weights finds
// for each tunable rule with the same budget on the same half of the data, in
// the order of the rule's Params. To compute them anew: rhizome-lab tune. They
// stand at the published defaults until a run of it is recorded here.

func fittedLMetric() []float64     { return []float64{1, 1, 1, 1} }
func fittedDynamo() []float64      { return []float64{1, 1, 0.75, 0.25, 0, 0} }
func fittedLLMDPrecise() []float64 { return []float64{3, 2, 2, 0.8, 2} }
func fittedSGLRouter() []float64   { return []float64{1024, 0.05, 8, 32, 1024, 1024, 1.5} }
