package policy

import (
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// smgMesh is smg with its mesh: the trees are made of what the replicas sent
// where, and each replica tells the others about once a second what it added.
//
// If more than 0.3 of the prompt is found in the tree, the affine workers are
// those with the longest match, at most 8 of them, and the choice among them
// is smg's, with the same two thresholds of pressure. Otherwise the request
// goes to the worker with the least expected wait. Either way the prompt is
// added to the chosen worker's tree.
//
// Source: smg-project/smg, model_gateway/src/policies/cache_aware.rs
// (select_worker_with_tokens), crates/kv_index/src/token_tree.rs (at most 8
// tenants of the deepest node, in no order), model_gateway/src/mesh (tree
// deltas hold insertions only and go out once a second). Mesh sync works on
// these approximate trees; the event-driven ones are not shared.
// Signals: own routings, the others' a second late and perhaps lost; requests
// in flight through this replica; the metrics, as smg.
//
// Assumed: the limit of 2^26 tokens for the whole tree is split evenly over
// the workers. Which 8 of more are looked at is drawn at random.
type smgMesh struct {
	rememberer
	added  []insertion // and not told yet
	toldAt clock.Instant
}

// insertion is one prompt that went to one worker.
type insertion struct {
	worker int
	keys   []kv.Key
}

const (
	smgTreeTokens = 1 << 26
	smgMeshPeriod = time.Second
)

// SMGMesh makes replicas of smg-mesh.
func SMGMesh() Maker {
	return each(func(cfg Config, i int) Router {
		return &smgMesh{rememberer: newRememberer(cfg, "smg-mesh", i, smgTreeTokens/max(1, cfg.BlockTokens)/cfg.Workers)}
	})
}

// Choose implements Router.
func (p *smgMesh) Choose(now clock.Instant, r *Request) Choice {
	w := p.settle(p.affine(len(r.Keys), func(w int) int { return p.tree.run(w, r.Keys) }))
	cached := cachedTokens(r, p.tree.run(w, r.Keys))
	p.tree.touch(now, w, r.Keys)
	if p.cfg.Replicas > 1 && len(r.Keys) > 0 {
		p.added = append(p.added, insertion{w, slices.Clone(r.Keys)})
	}
	p.send(r, w, r.PromptTokens-cached)
	return Choice{Worker: w, CachedTokens: cached}
}

// Tell implements Peer.
func (p *smgMesh) Tell(now clock.Instant) any {
	if len(p.added) == 0 || now.Sub(p.toldAt) < smgMeshPeriod {
		return nil
	}
	told := p.added
	p.added, p.toldAt = nil, now
	return told
}

// Hear implements Peer.
func (p *smgMesh) Hear(now clock.Instant, _ int, said any) {
	inserts, _ := said.([]insertion)
	for _, in := range inserts {
		if p.up[in.worker] {
			p.tree.touch(now, in.worker, in.keys)
		}
	}
}
