package workload

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChatSessionsFollowFromSeedAndNumber(t *testing.T) {
	c := DefaultChat()
	c.StartsPerSecond = 5
	if d := cmp.Diff(c.Session(12), c.Session(12)); d != "" {
		t.Error("session 12 changed:", d)
	}
	other := c
	other.Seed = 2
	if cmp.Equal(c.Session(12), other.Session(12)) || cmp.Equal(c.Session(12).Turns, c.Session(13).Turns) {
		t.Error("other seeds or numbers give the same session")
	}
}

func TestChatShares(t *testing.T) {
	c := DefaultChat()
	c.StartsPerSecond = 5
	const n = 4000
	systems := make([]int, c.SystemPrompts)
	var tokens, turns, paused, long int
	var gap time.Duration
	for i := range n {
		s := c.Session(i)
		systems[s.System]++
		gap += s.Gap
		if s.Tokens {
			tokens++
		}
		if len(s.Turns) < c.MinTurns || len(s.Turns) > c.MaxTurns {
			t.Fatalf("session %d has %d turns", i, len(s.Turns))
		}
		for _, turn := range s.Turns {
			turns++
			if turn.After > 5*c.Think {
				paused++
			}
			if turn.UserTokens > c.UserTokens {
				long++
			}
			if turn.UserTokens < 1 || turn.UserTokens > 8*c.UserTokens || turn.OutputTokens < 1 {
				t.Fatalf("session %d: %+v", i, turn)
			}
		}
	}
	near := func(what string, got, want, tolerance float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s: %.3f, want %.3f ± %.3f", what, got, want, tolerance)
		}
	}
	near("token sessions", float64(tokens)/n, c.TokenShare, 0.03)
	near("starts per second", n/gap.Seconds(), c.StartsPerSecond, 0.3)
	near("user messages above the median", float64(long)/float64(turns), 0.5, 0.03)
	near("first system prompt over second", float64(systems[0])/float64(systems[1]), math.Pow(2, c.Skew), 0.3)
	near("long waits", float64(paused)/float64(turns), 0.05, 0.03)
	for k := 1; k < len(systems); k++ {
		if systems[k] == 0 {
			t.Errorf("system prompt %d is never used", k)
		}
	}
}

func TestChatTextIsSharedAsSaid(t *testing.T) {
	c := DefaultChat()
	a, b := c.Session(1), c.Session(2)
	if got := len(c.SystemText(nil, 3)); got != c.SystemTokens*BytesPerToken {
		t.Errorf("system prompt of %d bytes", got)
	}
	if len(c.UserText(nil, &a, 1)) != a.Turns[1].UserTokens*BytesPerToken || len(c.UserTokenIDs(nil, &a, 1)) != a.Turns[1].UserTokens {
		t.Error("user message has another length than its turn says")
	}
	texts := [][]byte{c.SystemText(nil, 0), c.SystemText(nil, 1), c.UserText(nil, &a, 0), c.UserText(nil, &a, 1), c.UserText(nil, &b, 0)}
	for i, x := range texts {
		for _, y := range texts[:i] {
			if bytes.Equal(x[:min(len(x), 40)], y[:min(len(y), 40)]) {
				t.Errorf("texts %d and an earlier one begin alike: %.40q", i, x)
			}
		}
	}
}

func TestChatValidate(t *testing.T) {
	if err := DefaultChat().Validate(); err != nil {
		t.Error(err)
	}
	bad := DefaultChat()
	bad.Concurrent, bad.TokenShare, bad.MinTurns, bad.Skew = 0, 1.5, 9, math.NaN()
	err := bad.Validate()
	for _, says := range []string{"concurrent is 0", "token share is 1.5", "turns are 9 to 8", "skew is NaN"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v does not say %q", err, says)
		}
	}
}
