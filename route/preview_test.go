package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
	"pgregory.net/rapid"
)

// asJSON is all that an explanation tells.
func asJSON(t testing.TB, e Explanation) string {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// differ shows where two texts part.
func differ(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-100)
	return fmt.Sprintf("…%.200s\n…%.200s", a[from:], b[from:])
}

// Whatever went before, previews change nothing: two in a row are equal, the
// decision that follows is what they said, and a router that was never asked
// for one decides the same.
func TestPreviewIsTheDecisionToCome(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := Policies[rapid.IntRange(0, len(Policies)-1).Draw(rt, "policy")]
		asked, other := newHouse(t, policy, 4), newHouse(t, policy, 4)
		var open, twins []*Decision
		for n := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			wait := time.Duration(rapid.IntRange(0, 500).Draw(rt, "ms")) * time.Millisecond
			asked.clock.Advance(wait)
			other.clock.Advance(wait)
			if len(open) > 0 && rapid.IntRange(0, 2).Draw(rt, "end") == 0 {
				out := Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 200, CachedTokens: 16, CompletionTokens: 5}}
				asked.FirstByte(open[0])
				other.FirstByte(twins[0])
				asked.Done(open[0], out)
				other.Done(twins[0], out)
				open, twins = open[1:], twins[1:]
				continue
			}
			shared, own := 16*rapid.IntRange(1, 100).Draw(rt, "shared"), rapid.IntRange(0, 64).Draw(rt, "own")
			session := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "session")
			query := func() Query {
				return Query{ID: fmt.Sprint(n), Session: session, Prompt: tokens(t, shared, own, n)}
			}
			before, flying := asked.Stats(), inFlight(asked)
			first, err := asked.Preview(query())
			if err != nil {
				rt.Fatal(err)
			}
			second, _ := asked.Preview(query())
			if asJSON(t, first) != asJSON(t, second) {
				rt.Fatalf("two previews:\n%s", differ(asJSON(t, first), asJSON(t, second)))
			}
			if asked.Stats() != before || inFlight(asked) != flying {
				rt.Fatalf("a preview counts: %+v, %d in flight", asked.Stats(), inFlight(asked))
			}
			d, err := asked.Decide(query())
			if err != nil {
				rt.Fatal(err)
			}
			made, _ := asked.Explain(d.ID)
			if asJSON(t, first) != asJSON(t, made) {
				rt.Fatalf("previewed, then decided:\n%s", differ(asJSON(t, first), asJSON(t, made)))
			}
			twin, err := other.Decide(query())
			if err != nil {
				rt.Fatal(err)
			}
			if d.Target != twin.Target || d.CostMicros != twin.CostMicros {
				rt.Fatalf("with previews %s at %v, without %s at %v", d.Target, d.CostMicros, twin.Target, twin.CostMicros)
			}
			open, twins = append(open, d), append(twins, twin)
		}
	})
}

func inFlight(h *house) (n int) {
	for _, m := range h.members {
		n += m.Ledger.InFlight()
	}
	return n
}

func TestPreviewNamesTheWorker(t *testing.T) {
	h := newHouse(t, Rhizome, 3)
	p := tokens(t, 4000, 16, 1)
	h.hold(h.members[2], p, 0, 200, kv.HBM)
	e, err := h.Preview(Query{Prompt: p})
	if err != nil || e.Worker != h.members[2].Worker.Spec.URL || e.Rank != kv.NoRank || e.CachedTokens != 3200 || e.TTFTMillis <= 0 {
		t.Errorf("%v, %+v", err, e)
	}
	if st := h.index.Stats(); st.Promises != 0 {
		t.Errorf("%d blocks promised", st.Promises)
	}
	if _, err := h.Preview(Query{Prompt: &prompt.Request{Model: "x"}}); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("an unknown model: %v", err)
	}
}
