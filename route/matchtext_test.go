package route

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// A search for the holders of a text finds what a look at every member finds:
// whatever is known of its tokens on whose classes, and whatever was sent where.
func TestHoldersOfTextsAreThoseOfALookAtAll(t *testing.T) {
	const headTokens = 400
	heads := []string{strings.Repeat("system ", 800), strings.Repeat("others ", 800)}
	chat := func(head, user string) *prompt.Request {
		raw, err := json.Marshal(map[string]any{"model": "m", "stream": true, "messages": []map[string]string{{"role": "system", "content": head}, {"role": "user", "content": user}}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := prompt.Parse(prompt.Chat, raw)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	fromEach := map[string]int{}
	for seed := range uint64(20) {
		rng := clock.Rand(seed, "holders of texts")
		h := newHouse(t, Rhizome, 2*preselectFrom)
		h.deps.Learned = prompt.NewLearned(0)
		forms := []prompt.Form{{BlockTokens: blockTokens}, {BlockTokens: 2 * blockTokens}}
		h.deps.Learned.SetForms(forms)
		for class := prompt.Class(1); class <= 2; class++ {
			whole := make([]uint32, headTokens+100)
			for i := range whole {
				whole[i] = uint32(class)<<16 + uint32(i)
			}
			for i := range uint32(3) {
				p := chat(heads[0], fmt.Sprint("user ", i))
				own := slices.Clone(whole)
				own[headTokens] = 1e6 + i
				h.deps.Learned.Learn(prompt.Lesson{Class: class, Request: p, Whole: own, At: h.deps.Learned.Note(p, class).At, Part: own[:headTokens]})
			}
		}
		for step := range 30 {
			h.clock.Advance(reseatEvery)
			i := rng.IntN(len(h.members))
			m, p := h.members[i], chat(heads[rng.IntN(2)], strings.Repeat(fmt.Sprint("question ", rng.IntN(3)), 900))
			c := m.Cache()
			switch rng.IntN(7) {
			case 0: // another kind of cache, or one of which no events tell
				c.BlockTokens, c.Known = []int{blockTokens, 2 * blockTokens, 0}[rng.IntN(3)], []fleet.Known{fleet.ByEvents, fleet.BySent}[rng.IntN(2)]
				m.SetCache(c)
				if seats := h.seats.Load(); seats != nil {
					seats.check(int32(i)) // as at its turn
				}
			case 1: // restarted
				h.index.Drop(c.Slot)
				h.deps.Approx.Drop(c.Slot)
				c.Slot = h.index.Open(index.HBMThenOneTier)
				m.SetCache(c)
			case 2:
				keys, _ := sentKeys(p)
				h.deps.Approx.Touch(c.Slot, keys[:1+rng.IntN(len(keys))], m.Clock(&c))
			case 3:
				m.SetOutdated(rng.IntN(4) == 0)
			case 4: // what all told ends soon
				for _, o := range h.members {
					if o.SetRenderClass("m", 1, o.Cache().Slot, h.clock.Now().Add(reseatEvery/2)) {
						h.deps.Learned.ClassChanged()
					}
				}
			default:
				class := rng.IntN(3)
				if m.SetRenderClass("m", uint64(class), c.Slot, h.clock.Now().Add(time.Hour)) {
					h.deps.Learned.ClassChanged()
				}
				known := h.deps.Learned.Find(p, prompt.Class(class), prompt.Form{BlockTokens: c.BlockTokens})
				for _, k := range known.Keys[:rng.IntN(len(known.Keys)+1)] {
					h.index.Apply(c.Slot, []index.Change{{Key: k, Tier: kv.Tier(rng.IntN(2)), Present: true}})
				}
			}
			q := Query{ID: fmt.Sprint(step), Prompt: p}
			want := h.matched(h.members, p)
			s, err := h.find(&q)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]matched, len(h.members))
			for i, m := range h.members {
				got[i] = h.none(s, m, p)
			}
			for k := range s.hits {
				got[s.holders[k]] = s.hits[k]
				fromEach[s.hits[k].source]++
			}
			for i := range want {
				want[i].mark, got[i].mark = 0, 0
			}
			if d := gocmp.Diff(want, got, gocmp.AllowUnexported(matched{})); d != "" {
				t.Fatalf("seed %d, step %d (-all +holders):\n%s", seed, step, d)
			}
			// A class that nobody is of any more may still say how long the text is.
			if want := deepest(want); want.Tokens > s.deepest.Tokens {
				t.Fatalf("%d tokens of the text are known, %d by a look at all", s.deepest.Tokens, want.Tokens)
			}
			h.searches.Put(s)
		}
	}
	if fromEach[fromLearned] < 50 || fromEach[fromSent] < 50 {
		t.Errorf("hits by source: %v", fromEach)
	}
}
