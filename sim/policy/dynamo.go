package policy

import (
	"math"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// DynamoParams are the options of Dynamo's KV router that its cost uses.
type DynamoParams struct {
	PrefillScale  float64 // of the prefill that is left after credits; --router-prefill-load-scale
	Credit        float64 // of a block in HBM; --router-kv-overlap-score-credit
	HostCredit    float64 // of a block in host memory; --router-host-cache-hit-weight
	DiskCredit    float64 // of a block on disk or in a remote pool; --router-disk-cache-hit-weight
	RequestWeight float64 // blocks that each active request costs; --router-decode-active-request-weight
	Temperature   float64 // of the softmax over costs; 0 takes the lowest; --router-temperature
}

// DefaultDynamo returns what Dynamo ships.
func DefaultDynamo() DynamoParams {
	return DynamoParams{PrefillScale: 1, Credit: 1, HostCredit: 0.75, DiskCredit: 0.25}
}

// The settings that Dynamo's documentation and benchmarks publish.
func dynamoTuned() DynamoParams {
	p := DefaultDynamo()
	p.PrefillScale = 32
	return p
}

func dynamoAgentic() DynamoParams {
	p := DefaultDynamo()
	p.PrefillScale, p.Credit, p.RequestWeight = 4, 2, 64
	return p
}

func dynamoTwoTier() DynamoParams {
	p := DefaultDynamo()
	p.PrefillScale, p.Credit, p.HostCredit = 32, 1.1, 0.5
	return p
}

// dynamo is the KV router of NVIDIA Dynamo. The lowest cost wins, in blocks:
//
//	scale · max(0, (active prefill tokens + ISL)/block − credit)
//	  + active blocks + new blocks + request weight · active requests
//
// credit is c·HBM + 0.75·host + 0.25·(disk + remote) blocks: the prompt's
// leading blocks in HBM, and those that follow on a lower tier. Active prefill
// tokens are those that active requests have to compute, each in full until
// its first token. Active blocks are the different blocks that active requests
// hold, new ones those of this prompt that no active request holds. Equal costs
// are drawn at random. With a temperature T > 0 the worker is drawn with the
// weights e^(−cost/((max − min)·T)).
//
// Source: ai-dynamo/dynamo, lib/kv-router/src/scheduling/selector/default.rs
// and mod.rs, config.rs for the defaults, lib/kv-router/src/sequences for what
// is active. Signals: KV events; own requests in flight, with their blocks.
// With replica sync the others' as well, see dynamosync.go. No metrics.
//
// Assumed: a request's blocks are its prompt's whole ones, since blocks of the
// answer are not tracked by default; what a request has to compute is its
// prompt less the weighted credit at c = 1. The admission queue in front of
// the selector is left out. dynamo-two-tier's three numbers are taken for the
// scale and the credits of HBM and of host memory.
type dynamo struct {
	follower
	p       DynamoParams
	shared  replicaSync
	costs   []float64 // by position in ups
	weights []float64
}

// Dynamo makes replicas of dynamo with given parameters.
func Dynamo(p DynamoParams) Maker {
	return each(func(cfg Config, i int) Router {
		d := &dynamo{follower: newFollower(cfg, "dynamo", i), p: p}
		d.book.active = newActiveBlocks()
		return d
	})
}

// Choose implements Router.
func (d *dynamo) Choose(now clock.Instant, r *Request) Choice {
	d.forgetOld(now)
	runs := d.caches.match(r.Keys)
	d.costs = d.costs[:0]
	best := d.least()
	for _, w := range d.ups {
		c := d.cost(r, w, runs[w])
		d.costs = append(d.costs, c)
		best.offer(w, c)
	}
	w := best.worker
	if d.p.Temperature > 0 {
		w = d.ups[d.soften()]
	}
	cached := cachedTokens(r, runs[w].Len())
	d.begin(r, w, d.uncached(r, runs[w]))
	return Choice{Worker: w, CachedTokens: cached}
}

// cost returns what a request costs on a worker, in blocks.
func (d *dynamo) cost(r *Request, worker int, run index.Run) float64 {
	l := &d.book.loads[worker]
	prefill := float64(l.prefillTokens+r.PromptTokens)/float64(max(1, r.BlockTokens)) - d.credit(run, d.p.Credit)
	return d.p.PrefillScale*max(0, prefill) + float64(l.blocks+d.book.newBlocks(worker, r.Keys)) +
		d.p.RequestWeight*float64(l.requests)
}

// credit returns what the blocks found are worth, in blocks.
func (d *dynamo) credit(run index.Run, hbm float64) float64 {
	lower := d.p.DiskCredit
	if run.Tier == kv.CPU {
		lower = d.p.HostCredit
	}
	return hbm*float64(run.HBM) + lower*float64(run.Lower)
}

// uncached returns the tokens that Dynamo expects a worker to compute.
func (d *dynamo) uncached(r *Request, run index.Run) int {
	return max(0, r.PromptTokens-int(math.Round(d.credit(run, 1)*float64(r.BlockTokens))))
}

// soften draws a position in costs by the softmax rule.
func (d *dynamo) soften() int {
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range d.costs {
		low, high = min(low, c), max(high, c)
	}
	if low == high {
		return d.rng.IntN(len(d.costs))
	}
	d.weights = d.weights[:0]
	sum := 0.0
	for _, c := range d.costs {
		x := math.Exp((low - c) / ((high - low) * d.p.Temperature))
		d.weights = append(d.weights, x)
		sum += x
	}
	draw := d.rng.Float64() * sum
	for i, x := range d.weights {
		if draw -= x; draw <= 0 {
			return i
		}
	}
	return len(d.weights) - 1
}

// tunableDynamo describes Dynamo's options to an optimiser.
func tunableDynamo() Tunable {
	return Tunable{
		Params: []Param{
			{Name: "prefill_scale", Low: 0.1, High: 256, Log: true, Default: DefaultDynamo().PrefillScale},
			{Name: "credit", Low: 0, High: 3, Default: DefaultDynamo().Credit},
			{Name: "host_credit", Low: 0, High: 1, Default: DefaultDynamo().HostCredit},
			{Name: "disk_credit", Low: 0, High: 1, Default: DefaultDynamo().DiskCredit},
			{Name: "request_weight", Low: 0, High: 512, Default: DefaultDynamo().RequestWeight},
			{Name: "temperature", Low: 0, High: 1, Default: DefaultDynamo().Temperature},
		},
		Make: func(x []float64) Maker {
			return Dynamo(DynamoParams{PrefillScale: x[0], Credit: x[1], HostCredit: x[2], DiskCredit: x[3],
				RequestWeight: x[4], Temperature: x[5]})
		},
	}
}
