package route

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

// A session that an earlier process placed goes on where it was, and its last
// prompt is expected to be there, unless it is too old or the worker's cache
// began anew.
func TestSessionsOutliveTheProcess(t *testing.T) {
	old := newHouse(t, Rhizome, 4)
	p := text(t, "a prompt that one knows nothing about")
	p.TextBytes = 40_000
	place := func(h *house) *Decision {
		d, err := h.Decide(Query{ID: "x", Session: "s", Prompt: p})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := place(old)
	old.Done(first, Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 9000, CachedTokens: 0, CompletionTokens: 10}})
	saved, err := DecodeSessions(EncodeSessions(old.Sessions(time.Hour, 100)))
	if err != nil || len(saved) != 1 || saved[0].Tokens != 9000 || saved[0].Target != first.Target {
		t.Fatalf("%+v, %v", saved, err)
	}
	restart := func() *house {
		h := newHouse(t, Rhizome, 4)
		h.clock.Advance(time.Hour)
		h.RestoreSessions(saved, time.Minute)
		return h
	}
	h := restart()
	d := place(h)
	if d.Target != first.Target || d.PredictedCachedTokens == 0 || d.source != fromSession {
		t.Errorf("placed at %v with %d tokens cached by %q, was at %v", d.Target, d.PredictedCachedTokens, d.source, first.Target)
	}
	// What the cache took in since counts, from when it was looked at first.
	h = restart()
	h.RestoreSessions(saved, 0) // known already: stays
	m := h.members[slices.IndexFunc(h.members, func(m *fleet.Member) bool { return m.Target == first.Target })]
	cache := m.Cache()
	cache.Evicting[kv.HBM], cache.HeldTokens[kv.HBM] = true, 10_000
	m.SetCache(cache)
	if e, err := h.Preview(Query{Session: "s", Prompt: p}); err != nil || e.CachedTokens == 0 {
		t.Errorf("%+v, %v", e, err)
	}
	cache.StoredTokens += 20_000
	m.SetCache(cache)
	if d := place(h); d.PredictedCachedTokens != 0 {
		t.Errorf("%d tokens expected of a cache that has forgotten them", d.PredictedCachedTokens)
	}
	// Guesses that don't come true lose their weight.
	h = restart()
	d = place(h)
	h.Done(d, Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 9000, CachedTokens: 0, CompletionTokens: 10}})
	if h.sessions.kept >= 1 {
		t.Error("nothing is learned of a guess that was wrong")
	}
}

func TestSavedSessionsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []SavedSession
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			all = append(all, SavedSession{
				Hash: rapid.Uint64().Draw(t, "hash"), Target: kv.Target{Worker: kv.WorkerID(rapid.Uint64().Draw(t, "worker")), Rank: rapid.Int16().Draw(t, "rank")},
				Since: time.Duration(rapid.Int64Range(0, int64(maxSince)).Draw(t, "since")), Tokens: rapid.Int32Min(0).Draw(t, "tokens"),
				Age: rapid.Uint64().Draw(t, "age"), Boot: kv.Boot(rapid.Uint64().Draw(t, "boot")),
			})
		}
		got, err := DecodeSessions(EncodeSessions(all))
		if err != nil || !slices.Equal(got, all) {
			t.Fatalf("%v, %v, want %v", got, err, all)
		}
	})
}

func TestSavedFitsComeBack(t *testing.T) {
	class := cost.Generic()
	want := map[ClassKey]cost.FitState{{"m", "vllm", "generic"}: cost.NewClassFit(&class).State(class), {Model: "n"}: {Samples: 3}}
	b, err := EncodeFits(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeFits(b)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v", got, err)
	}
	for key := range want { // order-free: each by itself
		a, _ := json.Marshal(got[key])
		b, _ := json.Marshal(want[key])
		if string(a) != string(b) {
			t.Errorf("%v: %s, want %s", key, a, b)
		}
	}
	for _, bad := range []string{"", "{}", `{"version":2}`, "x"} {
		if _, err := DecodeFits([]byte(bad)); !errors.Is(err, ErrSaved) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzDecodeSessions(f *testing.F) {
	f.Add(EncodeSessions([]SavedSession{{Hash: 1, Since: time.Second, Tokens: 5}}))
	f.Add([]byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := DecodeSessions(b)
		if err != nil {
			if !errors.Is(err, ErrSaved) {
				t.Fatal(err)
			}
			return
		}
		if string(EncodeSessions(all)) != string(b) {
			t.Fatal("what was read is not what was written")
		}
	})
}
