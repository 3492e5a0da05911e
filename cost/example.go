package cost

import "github.com/rhizome-router/rhizome/kv"

// Example is a worked example: one request, and for each row of the table what
// every worker would cost and which of them is picked.
type Example struct {
	Name  string
	About string // the request and the constants, for a reader
	Rows  []ExampleRow
}

// ExampleRow is one reading or one state of the links.
type ExampleRow struct {
	Name    string
	Workers []ExampleWorker
}

// Pick returns the index of the row's cheapest worker.
func (r *ExampleRow) Pick() int {
	pick := 0
	for i := range r.Workers {
		if r.Workers[i].CostMicros < r.Workers[pick].CostMicros {
			pick = i
		}
	}
	return pick
}

// ExampleWorker is one worker as it was priced.
type ExampleWorker struct {
	Name       string
	About      string // what it holds and has to do
	Terms      []NamedTerm
	CostMicros float64
	// Where a tier is involved, LinkBytesPerMicro is what its link leaves for a
	// load, and BreakEvenBytesPerMicro below which computing is faster than
	// loading; else both are 0.
	LinkBytesPerMicro, BreakEvenBytesPerMicro float64
}

// NamedTerm is one part of a cost.
type NamedTerm struct {
	Name   string
	Micros float64
}

// Named lists the terms in the order of the formula.
func (t Terms) Named() []NamedTerm {
	return []NamedTerm{{"queue", t.QueueMicros}, {"admission", t.AdmissionMicros}, {"load", t.LoadMicros}, {"prefill", t.PrefillMicros},
		{"own decode", t.OwnDecodeMicros}, {"prefill externality", t.PrefillExternalityMicros},
		{"KV externality", t.KVExternalityMicros}, {"queue externality", t.QueueExternalityMicros},
		{"eviction", t.EvictionMicros}, {"workflow", t.WorkflowMicros}, {"distance", t.DistanceMicros}, {"head of line", t.HeadOfLineMicros}}
}

// Named lists the terms in the order of the formula.
func (t ArticleTerms) Named() []NamedTerm {
	return []NamedTerm{{"prefill", t.PrefillMicros}, {"decode", t.DecodeMicros}, {"decode square", t.DecodeSquareMicros},
		{"tier", t.TierMicros}, {"head of line", t.HeadOfLineMicros}, {"affinity", t.AffinityMicros}, {"expected tools", t.ExpectedMicros}}
}

// BreakEvenBytesPerMicro is the bandwidth below which computing the lower
// tier's tokens is faster than loading them: the KV bytes of a token over
// e + q·ctx, with ctx the mean context of those tokens. 1 GB/s is 1000 B/µs.
func (c *Class) BreakEvenBytesPerMicro(h Hit) float64 {
	if h.LowerTokens <= 0 {
		return 0
	}
	return c.KVBytes / (c.TokenMicros + c.PairMicros*(h.HBMTokens+h.LowerTokens/2))
}

// ArticleExample is the article's own worked example, in both readings. The
// tier changes nothing in it: the idle worker wins every row.
func ArticleExample() Example {
	e := Example{Name: "article", About: "a prompt of 8000 tokens; α_p 1 µs a token, α_d 50, α_d2 0.001, 512 B of KV a token, a link of 64 GB/s, α_wf 5000 µs, λ 1/120 s, α_ho 100, slack 4"}
	r := Request{PromptTokens: 8000}
	for _, row := range []struct {
		name    string
		literal bool
		rho     float64
	}{{"literal, ρ 0.3", true, 0.3}, {"corrected, ρ 0.3", false, 0.3}, {"corrected, ρ 0.95", false, 0.95}} {
		a := DefaultArticle()
		a.Literal = row.literal
		w2 := ArticleLoad{RemainingTokens: 200, RemainingSquares: 50_000}
		w2.Rho[kv.CPU] = row.rho
		out := ExampleRow{Name: row.name}
		for _, w := range []struct {
			name, about string
			load        ArticleLoad
			hit         Hit
		}{
			{"W1", "HBM hit 7500, 4 active, Σd 800, 2 waiting, last worker 30 s ago",
				ArticleLoad{RemainingTokens: 800, RemainingSquares: 200_000, Queue: 2, LastWorker: true, SinceSeconds: 30}, Hit{HBMTokens: 7500}},
			{"W2", "CPU hit 7500, 1 active, Σd 200", w2, Hit{LowerTokens: 7500, Tier: kv.CPU}},
			{"W3", "idle, no hit", ArticleLoad{}, Hit{}},
		} {
			terms := a.Score(&w.load, r, w.hit)
			priced := ExampleWorker{Name: w.name, About: w.about, Terms: terms.Named(), CostMicros: terms.TotalMicros()}
			if w.hit.LowerTokens > 0 {
				priced.LinkBytesPerMicro = w.hit.LowerTokens * a.KVBytes / terms.TierMicros // as the reading has it
				priced.BreakEvenBytesPerMicro = a.KVBytes / a.PrefillMicros
			}
			out.Workers = append(out.Workers, priced)
		}
		e.Rows = append(e.Rows, out)
	}
	return e
}

// exampleClass are the constants of the example "tiers".
func exampleClass() Class {
	c := Class{StepMicros: 6200, SeqMicros: 10, KVTokenMicros: 0.049, TokenMicros: 22, PairMicros: 1.06e-3,
		BudgetTokens: 2048, MaxSeqs: 256, KVBytes: 131072}
	c.Links[kv.CPU] = Link{BytesPerMicro: 50_000}
	return c
}

// TiersExample shows that which worker wins depends on the congestion of the
// link and on the room in the KV pool, and on no constant discount for a tier.
// Weights and overhead are 0, so a cost is a time to first token.
func TiersExample() Example {
	e := Example{Name: "tiers", About: "a prompt of 8000 tokens; a 6200 µs, b 10, c 0.049, e 22, q 0.00106, 131072 B of KV a token, a link of 50 GB/s, 2048 tokens an iteration; residents hold 8000 tokens each; all weights 0"}
	class := exampleClass()
	full := class
	full.CapacityTokens = 64_000 / watermark
	residents := make([]Resident, 8)
	for i := range residents {
		residents[i] = Resident{RemainingTokens: 100, ExclusiveTokens: 8000}
	}
	type worker struct {
		name, about string
		class       *Class
		load        Load
		hit         Hit
	}
	w1 := worker{"W1", "HBM hit 7500, 4 residents, a prompt of 12000 queued", &class,
		Load{QueuedTokens: 12000, QueuedPairs: Pairs(12000, 0), QueuedSeqs: 1, Decoding: 4, ContextTokens: 32000}, Hit{HBMTokens: 7500}}
	w2 := worker{"W2", "CPU hit 7500, 1 resident", &class, Load{Decoding: 1, ContextTokens: 8000}, Hit{LowerTokens: 7500, Tier: kv.CPU}}
	w3 := worker{"W3", "idle, no hit", &class, Load{}, Hit{}}
	w3full := worker{"W3′", "no hit, 8 residents with 100 tokens to go, full pool", &full,
		Load{Decoding: 8, ContextTokens: 64000, UniqueTokens: 64000, Residents: residents}, Hit{}}
	for _, row := range []struct {
		name    string
		rho     float64
		workers []worker
	}{
		{"ρ 0.3", 0.3, []worker{w1, w2, w3, w3full}},
		{"ρ 0.95", 0.95, []worker{w1, w2, w3, w3full}},
		{"ρ 0.95, W3′ for W3", 0.95, []worker{w1, w2, w3full}},
	} {
		out := ExampleRow{Name: row.name}
		for _, w := range row.workers {
			w.load.Rho[kv.CPU] = row.rho
			terms := Score(w.class, &w.load, Request{PromptTokens: 8000, OutputTokens: 1, Choices: 1}, w.hit, Weights{})
			priced := ExampleWorker{Name: w.name, About: w.about, Terms: terms.Named(), CostMicros: terms.TotalMicros()}
			if w.hit.LowerTokens > 0 {
				priced.LinkBytesPerMicro = w.class.Links[w.hit.Tier].BytesPerMicro * available(row.rho)
				priced.BreakEvenBytesPerMicro = w.class.BreakEvenBytesPerMicro(w.hit)
			}
			out.Workers = append(out.Workers, priced)
		}
		e.Rows = append(e.Rows, out)
	}
	return e
}
