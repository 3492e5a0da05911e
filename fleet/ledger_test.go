package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/kv"
	"pgregory.net/rapid"
)

func booking(prompt, hit float64) *Booking {
	p := prompt - hit
	return &Booking{PromptTokens: prompt, HBMTokens: hit, UncachedTokens: p, UncachedPairs: cost.Pairs(p, hit),
		OutputTokens: 100, Choices: 1, PredictedTTFT: time.Second}
}

// prefixes names the blocks of a prompt; prompts of one family lead one another.
func prefixes(family, n int) []kv.Key {
	keys := make([]kv.Key, n)
	for i := range keys {
		keys[i] = kv.Key(family<<32 | i + 1)
	}
	return keys
}

// What two requests share takes room once, and what they use already takes
// none; a block that merely lies in the cache takes room when it is used.
func TestLedgerCountsSharedPrefixesOnce(t *testing.T) {
	var l Ledger
	class := cost.Generic()
	a, b := booking(1600, 1500), booking(2400, 1600)
	a.Parts = Parts{Keys: prefixes(1, 16), KeyTokens: 100}
	b.Parts = Parts{Keys: prefixes(1, 24), KeyTokens: 100}
	if in := l.InUseTokens(&a.Parts); in != 0 {
		t.Errorf("%v tokens are in use on an idle worker", in)
	}
	l.Book(0, a)
	if in := l.InUseTokens(&b.Parts); in != 1600 {
		t.Errorf("%v tokens of the prompt are in use, want all 1600 of the one in flight", in)
	}
	b.InUseTokens = 1600
	l.Book(0, b)
	if got := l.Load(0, &class, time.Millisecond, false).UniqueTokens; got != 2400+200 {
		t.Errorf("%v tokens are occupied, want 2400 and twice 100 of output", got)
	}
	l.Release(0, a)
	if got := l.Load(0, &class, time.Millisecond, false).UniqueTokens; got != 2400+100 {
		t.Errorf("%v tokens are occupied when the first has ended, want 2500", got)
	}
}

// Parts of a text are of different lengths.
func TestLedgerCountsUnequalParts(t *testing.T) {
	var l Ledger
	a := booking(4000, 0)
	a.Parts = Parts{Keys: prefixes(1, 16), Ends: make([]float64, 16)}
	for i := range a.Parts.Ends {
		a.Parts.Ends[i] = 100 * float64(i+1)
		if i >= 8 {
			a.Parts.Ends[i] = 800 + 400*float64(i-7)
		}
	}
	l.Book(0, a)
	class := cost.Generic()
	if got := l.Load(0, &class, time.Millisecond, false).UniqueTokens; got != 4000+100 {
		t.Errorf("%v tokens are occupied, want 4100", got)
	}
	half := Parts{Keys: a.Parts.Keys[:8], Ends: a.Parts.Ends[:8]}
	if got, whole := l.InUseTokens(&half), l.InUseTokens(&a.Parts); got != 800 || whole != 4000 {
		t.Errorf("%v and %v tokens are in use, want 800 and 4000", got, whole)
	}
}

func TestLedgerFollowsARequest(t *testing.T) {
	var l Ledger
	class := cost.Generic()
	const step = 10 * time.Millisecond
	a, b := booking(8000, 6000), booking(1000, 0)
	l.Book(0, a)
	l.Book(0, b)
	if got := l.Load(0, &class, step, false); got.QueuedTokens != 3000 || got.QueuedSeqs != 2 || got.Decoding != 0 {
		t.Errorf("after booking: %+v", got)
	}
	now := clock.Instant(20 * time.Millisecond)
	if got := l.Load(now, &class, step, false); got.QueuedTokens >= 3000 || got.QueuedTokens <= 1000 {
		t.Errorf("the head's prefill must progress and leave the next alone: %+v", got)
	}
	l.FirstToken(now, a, step)
	l.FirstToken(now, a, step) // twice is once
	got := l.Load(now, &class, step, true)
	if got.QueuedTokens != 1000 || got.Decoding != 1 || got.ContextTokens != 8050 || got.UniqueTokens != 8100+1100 {
		t.Errorf("while decoding: %+v", got)
	}
	if len(got.Residents) != 1 || got.Residents[0] != (cost.Resident{RemainingTokens: 100, ExclusiveTokens: 8100}) {
		t.Errorf("residents: %+v", got.Residents)
	}
	l.Release(now, a)
	l.Release(now, a)
	l.Release(now, b)
	if got := l.Load(now, &class, step, true); l.InFlight() != 0 || got.UniqueTokens != 0 || got.QueuedTokens != 0 || got.Decoding != 0 {
		t.Errorf("at the end: %+v", got)
	}
}

// A worker that shows no first token must not look idle, however long it takes.
func TestLedgerOfAHangingWorkerStandsStill(t *testing.T) {
	var l Ledger
	class := cost.Generic()
	for range 3 {
		b := booking(20_000, 0)
		b.PredictedTTFT = time.Hour
		l.Book(0, b)
	}
	soon := l.Load(clock.Instant(10*time.Second), &class, time.Millisecond, false)
	late := l.Load(clock.Instant(30*time.Minute), &class, time.Millisecond, false)
	if late.QueuedTokens != soon.QueuedTokens || late.QueuedTokens < 20_000 {
		t.Errorf("after 10 s %v tokens are queued, after 30 min %v", soon.QueuedTokens, late.QueuedTokens)
	}
}

func TestLedgerSettlesWhatStaysSilent(t *testing.T) {
	var l Ledger
	class := cost.Generic()
	silent, streamed := booking(1000, 0), booking(1000, 0)
	silent.Silent = true
	l.Book(0, streamed)
	l.Book(0, silent)
	for _, c := range []struct {
		after  time.Duration
		queued int
	}{{999 * time.Millisecond, 2}, {time.Second, 1}, {2900 * time.Millisecond, 1}, {3 * time.Second, 0}} {
		now := clock.Instant(c.after)
		l.Settle(now, time.Millisecond)
		if got := l.Load(now, &class, time.Millisecond, false); got.QueuedSeqs != c.queued {
			t.Errorf("after %v: %d queued, want %d", c.after, got.QueuedSeqs, c.queued)
		}
	}
}

// Whatever happens in whatever order, the sums are those of what is in flight.
func TestLedgerSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		class := cost.Generic()
		var all []*Booking
		now := clock.Instant(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			action := rapid.IntRange(0, 3).Draw(t, "action")
			if action == 0 || len(all) == 0 {
				prompt := float64(rapid.IntRange(1, 100_000).Draw(t, "prompt"))
				b := booking(prompt, math.Floor(prompt*rapid.Float64Range(0, 0.99).Draw(t, "hit")))
				b.Silent = rapid.Bool().Draw(t, "silent")
				b.Parts = Parts{Keys: prefixes(rapid.IntRange(0, 2).Draw(t, "family"), int(prompt/100)), KeyTokens: 100}
				b.InUseTokens = min(prompt, l.InUseTokens(&b.Parts))
				l.Book(now, b)
				all = append(all, b)
				continue
			}
			b := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
			switch action {
			case 1:
				l.FirstToken(now, b, 10*time.Millisecond)
			case 2:
				l.Release(now, b)
			case 3:
				l.Settle(now, 10*time.Millisecond)
			}
			var tokens, unique float64
			held := make(map[kv.Key]bool)
			inFlight := 0
			for _, b := range all {
				switch b.stage {
				case queued:
					tokens += b.UncachedTokens
					fallthrough
				case decoding:
					unique += b.OutputTokens
					for _, k := range b.Parts.Keys[:len(b.Parts.Keys)/occupiedStride*occupiedStride] {
						held[k] = true
					}
					unique += b.PromptTokens - b.Parts.covered()
					inFlight++
				}
			}
			unique += 100 * float64(len(held))
			load := l.Load(now, &class, 10*time.Millisecond, true)
			if inFlight != l.InFlight() || math.Abs(l.sums.queuedTokens-tokens) > 1e-6 || math.Abs(load.UniqueTokens-unique) > 1e-6 {
				t.Fatalf("in flight %d of %d, queued %v of %v, unique %v of %v", l.InFlight(), inFlight,
					l.sums.queuedTokens, tokens, load.UniqueTokens, unique)
			}
			for i := 1; i < len(load.Residents); i++ {
				if load.Residents[i].RemainingTokens < load.Residents[i-1].RemainingTokens {
					t.Fatal("residents are not in the order of their end")
				}
			}
		}
		for _, b := range all {
			l.Release(now, b)
		}
		if l.sums != (sums{}) || l.InFlight() != 0 || len(l.occupied.first) != 0 || l.occupied.tokens != 0 {
			t.Fatalf("not back to zero: %+v, %+v", l.sums, l.occupied)
		}
	})
}
