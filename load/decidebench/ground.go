package decidebench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

const (
	model       = "bench"
	blockTokens = 16
	// holders is how many workers hold each conversation, all of it but what its
	// last turn adds, tailTokens.
	holders, tailTokens = 4, 512
	// conversations there are, and turns of each to be placed.
	conversations, turns = 4, 8
	// resident requests there are on a worker on average, at the beginning.
	resident = 4
)

// ground is a router over workers that nobody runs, whose caches and load are
// as those of a fleet at work: two classes of workers, some of their prefills
// under way. Its time goes by decisions: each worker is to get a request a second.
type ground struct {
	router  *route.Router
	clock   clock.Virtual
	pause   time.Duration // from one decision to the next
	view    *fleet.View
	index   *index.Index
	members map[kv.Target]*fleet.Member
	prompts []*prompt.Request
	shared  int // blocks of a prompt of token ids that its holders have
}

// View returns the fleet.
func (g *ground) View() *fleet.View { return g.view }

// newGround returns one whose prompts are token ids, or text whose tokens nobody
// knows.
func newGround(workers, promptTokens int, text bool) (*ground, error) {
	g := &ground{index: index.New(index.Config{Seed: 1}), pause: time.Second / time.Duration(workers)}
	rng := clock.Rand(1, "bench of decisions")
	classes := [2]cost.Class{cost.Generic(), cost.Generic().Scaled(1.6)}
	classes[1].Name = "slower"
	var members []*fleet.Member
	for i := range workers {
		spec, err := engine.ParseSpec(fmt.Sprintf("http://10.%d.%d.%d:8000", i>>16, i>>8&255, i&255))
		if err != nil {
			return nil, err
		}
		w, err := engine.NewWorker("bench", spec)
		if err != nil {
			return nil, err
		}
		m := fleet.NewMember(kv.Target{Worker: w.ID, Rank: kv.NoRank}, w, classes[i%len(classes)], g.index.Open(index.HBMThenOneTier))
		m.SetHealthy(true)
		m.SetCache(fleet.Cache{Slot: m.Cache().Slot, Known: fleet.ByEvents, Live: true, BlockTokens: blockTokens})
		m.SetSignals(fleet.Signals{CapacityTokens: fleet.Signal{Value: 8e6, Source: fleet.Configured}})
		book(m, rng, g.clock.Now())
		members = append(members, m)
	}
	g.members = make(map[kv.Target]*fleet.Member, workers)
	for _, m := range members {
		g.members[m.Target] = m
	}
	g.view = fleet.NewView(members, []fleet.Served{{Model: engine.Model{ID: model}, Members: members}})
	approx := index.NewApprox(index.ApproxConfig{Seed: 1})
	g.router = route.New(
		route.Config{Policy: route.Rhizome, Weights: cost.DefaultWeights(), NearTie: route.DefaultMargins(), Article: cost.DefaultArticle(), Seed: 1},
		route.Deps{Fleet: g, Index: g.index, Approx: approx, Clock: &g.clock})
	if text {
		return g, g.chat(members, approx, promptTokens, rng)
	}
	g.converse(members, promptTokens, rng)
	return g, nil
}

// book puts requests on a member.
func book(m *fleet.Member, rng *rand.Rand, now clock.Instant) {
	for range rng.IntN(2*resident + 1) {
		tokens := 200 + 12_000*rng.Float64()*rng.Float64()
		b := &fleet.Booking{PromptTokens: tokens, UncachedTokens: tokens, UncachedPairs: cost.Pairs(tokens, 0),
			OutputTokens: 50 + 500*rng.Float64(), Choices: 1, PredictedTTFT: time.Hour}
		m.Ledger.Book(now, b)
		if rng.Float64() < 0.8 {
			m.Ledger.FirstToken(now, b, 10*time.Millisecond)
		}
	}
}

// converse makes the prompts, and lets workers hold what came before them.
func (g *ground) converse(members []*fleet.Member, promptTokens int, rng *rand.Rand) {
	for range conversations {
		tokens := make([]uint32, promptTokens)
		for i := range tokens {
			tokens[i] = rng.Uint32N(128_000)
		}
		g.shared = max(0, promptTokens-tailTokens) / blockTokens
		for turn := range turns {
			p := request(append([]uint32(nil), tokens...))
			for i := g.shared * blockTokens; i < promptTokens; i++ {
				p.Tokens[i] = rng.Uint32N(128_000)
			}
			g.prompts = append(g.prompts, p)
			if turn > 0 {
				continue
			}
			held := p.TokenKeys(prompt.Form{BlockTokens: blockTokens})[:g.shared]
			for range holders {
				g.index.Apply(members[rng.IntN(len(members))].Cache().Slot, stored(held))
			}
		}
	}
}

// textBytes is about how many bytes of text a token is.
const textBytes = 4

// chat makes prompts that are text, and has what came before them sent to workers.
func (g *ground) chat(members []*fleet.Member, approx *index.Approx, promptTokens int, rng *rand.Rand) error {
	for range conversations {
		text := words(textBytes*promptTokens, rng)
		shared := textBytes * max(0, promptTokens-tailTokens)
		var first *prompt.Request
		for turn := range turns {
			copy(text[shared:], words(len(text)-shared, rng))
			p, err := prompt.Parse(prompt.Chat, fmt.Appendf(nil, `{"model":%q,"stream":true,"max_tokens":200,"messages":[{"role":"user","content":%q}]}`, model, text))
			if err != nil {
				return err
			}
			g.prompts = append(g.prompts, p)
			if turn == 0 {
				first = p
				continue
			}
			if turn > 1 {
				continue
			}
			held, n := first.ChunkKeys(), 0
			for n < len(held) && n < len(p.ChunkKeys()) && held[n] == p.ChunkKeys()[n] {
				n++
			}
			for range holders {
				approx.Touch(members[rng.IntN(len(members))].Cache().Slot, held[:n], 0)
			}
		}
	}
	return nil
}

// words are so many bytes that look like text.
func words(n int, rng *rand.Rand) []byte {
	out := make([]byte, n)
	for i := range out {
		if out[i] = byte('a' + rng.IntN(26)); rng.IntN(6) == 0 {
			out[i] = ' '
		}
	}
	return out
}

// stored are the changes by which blocks come into a cache.
func stored(keys []kv.Key) (changes []index.Change) {
	for _, k := range keys {
		changes = append(changes, index.Change{Key: k, Tier: kv.HBM, Present: true, Whole: true})
	}
	return changes
}

// evicted are those by which they leave it again, from the end.
func evicted(keys []kv.Key) (changes []index.Change) {
	for _, k := range slices.Backward(keys) {
		changes = append(changes, index.Change{Key: k, Tier: kv.HBM, Whole: true})
	}
	return changes
}

func request(tokens []uint32) *prompt.Request {
	return &prompt.Request{Kind: prompt.Completion, Model: model, Stream: true, N: 1, Prompts: 1, MaxTokens: 200, Tokens: tokens}
}
