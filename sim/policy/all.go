package policy

import (
	"fmt"
	"strings"
	"time"
)

// llmdScrape is the period at which llm-d's endpoint picker refreshes metrics
// by default.
const llmdScrape = 50 * time.Millisecond

// Named is a rule by the name of its row in results.
type Named struct {
	Name   string
	Make   Maker
	Doc    string // one line
	Fitted bool   // its parameters come from our optimiser, not from the peer
	// Scrape is how often it reads the workers' metrics; 0: as the scenario has
	// it.
	Scrape time.Duration
}

// All returns every rule, in the order of the design. The policies that the
// product itself has are not among them.
func All() []Named {
	return []Named{
		{Name: "power-of-two", Make: PowerOfTwo(),
			Doc: "the less busy of two workers drawn at random"},
		{Name: "sglang-classic", Make: SGLangClassic(),
			Doc: "SGLang router: longest match of own routings over 30 %, shortest queue out of balance"},
		{Name: "smg", Make: SMG(),
			Doc: "SMG: longest match by KV events, spilling over 1.5x and 64 above the mean"},
		{Name: "smg-mesh", Make: SMGMesh(),
			Doc: "SMG with mesh: trees of own routings, insertions gossiped once a second"},
		{Name: "smg-radix-index", Make: SMGRadixIndex(),
			Doc: "SMG asking one shared index (2 ms), by load alone while it is down"},
		{Name: "sgl-kv-indexer", Make: SGLKVIndexer(),
			Doc: "sgl-router asking one shared index (2 ms), by load alone while it is down"},
		{Name: "sgl-router", Make: SGLRouter(DefaultSGLRouter()),
			Doc: "SGLang's new router: least uncached tokens among close matches, pressure guard"},
		{Name: "sgl-router-fitted", Make: tunableSGLRouter().Make(fittedSGLRouter()), Fitted: true,
			Doc: "sgl-router with parameters fitted like ours"},
		{Name: "dynamo", Make: Dynamo(DefaultDynamo()),
			Doc: "Dynamo KV router: prefill left after credits plus active blocks, replica sync"},
		{Name: "dynamo-tuned", Make: Dynamo(dynamoTuned()),
			Doc: "dynamo with prefill scale 32"},
		{Name: "dynamo-agentic", Make: Dynamo(dynamoAgentic()),
			Doc: "dynamo with credit 2, scale 4, request weight 64"},
		{Name: "dynamo-two-tier", Make: Dynamo(dynamoTwoTier()),
			Doc: "dynamo with scale 32, credit 1.1, host credit 0.5"},
		{Name: "dynamo-fitted", Make: tunableDynamo().Make(fittedDynamo()), Fitted: true,
			Doc: "dynamo with parameters fitted like ours"},
		{Name: "llm-d-approx", Make: LLMDApprox(), Scrape: llmdScrape,
			Doc: "llm-d: 3 match of own routings + 2 KV headroom + 2 queue"},
		{Name: "llm-d-precise", Make: LLMDPrecise(DefaultLLMDPrecise()), Scrape: llmdScrape,
			Doc: "llm-d: 3 match by KV events + 2 KV headroom + 2 queue, speculative entries for 2 s"},
		{Name: "llm-d-precise-fitted", Make: tunableLLMDPrecise().Make(fittedLLMDPrecise()), Fitted: true, Scrape: llmdScrape,
			Doc: "llm-d-precise with parameters fitted like ours"},
		{Name: "aibrix-prefix", Make: AIBrix(),
			Doc: "AIBrix: longest match of own routings among workers that are not too busy"},
		{Name: "lmetric", Make: LMetric(DefaultLMetric()),
			Doc: "LMetric: uncached tokens queued and own, times requests"},
		{Name: "lmetric-fitted", Make: tunableLMetric().Make(fittedLMetric()), Fitted: true,
			Doc: "lmetric with exponents and weights fitted like ours"},
		{Name: "preble", Make: Preble(),
			Doc: "Preble E2: exploit a match longer than the rest, else least load + eviction + prefill"},
	}
}

// ByName returns the rule of a name. The error lists the names there are.
func ByName(name string) (Named, error) {
	var names []string
	for _, n := range All() {
		if n.Name == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	return Named{}, fmt.Errorf("no policy %q among the peers' rules; there are %s", name, strings.Join(names, ", "))
}
