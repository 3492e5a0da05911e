package cost

// Weights are the exchange rates between my wait and others'. They are fixed,
// never tuned per deployment.
type Weights struct {
	// OwnDecode, w_d, is the share of the request's own decode time that counts.
	OwnDecode float64 `yaml:"own_decode" config:"zero"`
	// PrefillExternality, w_p, is how much a µs counts by which the prefill
	// delays the sequences that decode there.
	PrefillExternality float64 `yaml:"prefill_externality" config:"zero"`
	// KVExternality, w_k, is how much a µs counts by which the request's KV makes
	// their steps longer.
	KVExternality float64 `yaml:"kv_externality" config:"zero"`
	// QueueExternality, w_q, is how much a µs counts that those wait who come
	// later.
	QueueExternality float64 `yaml:"queue_externality" config:"zero"`
	// Eviction, w_e, is how much a µs counts that computing again what the
	// request displaces from the cache will take.
	Eviction float64 `yaml:"eviction" config:"zero"`
	// HeadOfLineMicros, α_ho, is what the square of the requests waiting on a
	// worker beyond HeadOfLineSlack costs: for engines that hide how much they
	// have to do.
	HeadOfLineMicros float64 `yaml:"head_of_line_micros" config:"zero"`
	// HeadOfLineSlack is how many may wait at no cost.
	HeadOfLineSlack float64 `yaml:"head_of_line_slack" config:"zero"`
}

// DefaultWeights are the rates the product ships with: what rhizome-lab tune
// found on set A, rounded. Those that it does not list are off.
func DefaultWeights() Weights {
	return Weights{OwnDecode: 0.14, PrefillExternality: 0.05, KVExternality: 0.06, QueueExternality: 1.6, HeadOfLineSlack: 4}
}
