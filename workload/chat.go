package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// Chat generates multi-turn conversations that share a few system prompts.
// Every session follows from the seed and its number alone, so that whoever
// plays it, in whatever order, asks for the same work. What it cannot know is
// the answers: each turn's prompt is the system prompt, then all earlier user
// messages and real answers of the session, then a new user message.
//
// In closed loop ([Chat.StartsPerSecond] 0) Concurrent sessions run at any time: each place
// takes up the next session number when its session ends. In open loop sessions
// start [Session.Gap] apart, however many are still running.
type Chat struct {
	Seed uint64
	// Concurrent is how many sessions run at once in closed loop, at least 1.
	Concurrent int
	// StartsPerSecond > 0 makes the loop open, with that mean rate of starts.
	StartsPerSecond float64
	// SystemPrompts is how many system prompts there are, of SystemTokens each;
	// session shares fall as rank^-Skew (Zipf).
	SystemPrompts, SystemTokens int
	Skew                        float64
	// MinTurns and MaxTurns bound the number of turns of a session, which is
	// uniform if Continue is 0. Else each turn from MinTurns on is followed by
	// another with that probability.
	MinTurns, MaxTurns int
	Continue           float64
	// UserTokens and OutputTokens are the medians of log-normal lengths, which
	// are cut at 8 times the median.
	UserTokens, OutputTokens int
	// Think is the mean (exponential) time between an answer's end and the next
	// turn. A share PauseShare of turns comes after a Pause (mean) on top,
	// which is when caches cool down.
	Think      time.Duration
	PauseShare float64
	Pause      time.Duration
	// TokenShare is the share of sessions that send token ids, not text.
	TokenShare float64
}

// DefaultChat is the demo's workload: sessions short enough to begin and end
// while one watches, with enough shared prefix for placement to matter.
func DefaultChat() Chat {
	return Chat{
		Seed: 1, Concurrent: 24,
		SystemPrompts: 6, SystemTokens: 3000, Skew: 1.1,
		MinTurns: 3, MaxTurns: 8,
		UserTokens: 250, OutputTokens: 120,
		Think: 4 * time.Second, PauseShare: 0.1, Pause: 20 * time.Second,
		TokenShare: 0.25,
	}
}

// Validate tells what is wrong with c, all of it at once.
func (c Chat) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	check(c.Concurrent >= 1 || c.StartsPerSecond > 0, "concurrent is %d, want at least 1", c.Concurrent)
	check(c.StartsPerSecond >= 0 && c.StartsPerSecond <= 1e6, "starts per second is %v, want 0 to 1e6", c.StartsPerSecond)
	check(c.SystemPrompts >= 1 && c.SystemPrompts <= 4096, "system prompts is %d, want 1 to 4096", c.SystemPrompts)
	check(c.SystemTokens >= 1 && c.SystemTokens <= maxTokens, "system tokens is %d, want 1 to %d", c.SystemTokens, maxTokens)
	check(c.Skew >= 0 && c.Skew <= 10, "skew is %v, want 0 to 10", c.Skew)
	check(c.MinTurns >= 1 && c.MinTurns <= c.MaxTurns && c.MaxTurns <= 10_000, "turns are %d to %d, want 1 to 10000 in order", c.MinTurns, c.MaxTurns)
	check(c.UserTokens >= 1 && c.UserTokens <= 1<<20, "user tokens is %d, want 1 to 2^20", c.UserTokens)
	check(c.OutputTokens >= 1 && c.OutputTokens <= 1<<20, "output tokens is %d, want 1 to 2^20", c.OutputTokens)
	check(c.Think >= 0 && c.Pause >= 0, "think is %v and pause %v, want neither negative", c.Think, c.Pause)
	check(share(c.Continue), "continue is %v, want 0 to 1", c.Continue)
	check(share(c.PauseShare), "pause share is %v, want 0 to 1", c.PauseShare)
	check(share(c.TokenShare), "token share is %v, want 0 to 1", c.TokenShare)
	if len(errs) > 0 {
		return fmt.Errorf("chat workload: %w", errors.Join(errs...))
	}
	return nil
}

// A Session is one conversation to be played.
type Session struct {
	// N is the session's number, which with the seed decides all else.
	N int
	// System is which system prompt it starts from, 0 the most common.
	System int
	// Tokens asks for prompts of token ids (completions) in place of chat text.
	Tokens bool
	// Gap is how long after the session before it this one starts in open loop.
	Gap   time.Duration
	Turns []Turn
}

// A Turn is one request of a [Session].
type Turn struct {
	// After is how long after the end of the turn before it this one is sent;
	// for the first, how long after the session's start.
	After time.Duration
	// UserTokens is the length of the new user message, OutputTokens that of
	// the answer to ask for.
	UserTokens, OutputTokens int
}

// Session returns session n of the workload, n >= 0. c must be valid.
func (c Chat) Session(n int) Session { return c.session(n, newRanks(c.SystemPrompts, c.Skew)) }

func (c Chat) session(n int, systems ranks) Session {
	rng := clock.Rand(c.Seed, "workload/chat/"+strconv.Itoa(n))
	s := Session{N: n, System: systems.draw(rng), Tokens: rng.Float64() < c.TokenShare}
	if c.StartsPerSecond > 0 {
		s.Gap = time.Duration(rng.ExpFloat64() / c.StartsPerSecond * float64(time.Second))
	}
	s.Turns = make([]Turn, c.turns(rng))
	for k := range s.Turns {
		think := time.Duration(rng.ExpFloat64() * float64(c.Think))
		pause := time.Duration(rng.ExpFloat64() * float64(c.Pause))
		if rng.Float64() >= c.PauseShare {
			pause = 0
		}
		s.Turns[k] = Turn{
			After:        think + pause,
			UserTokens:   length(rng, c.UserTokens),
			OutputTokens: length(rng, c.OutputTokens),
		}
	}
	return s
}

// SystemText and the methods below give the words (or token ids) of a session.
// Sessions of one system prompt share it byte for byte; user messages are
// shared with nobody.
func (c Chat) SystemText(dst []byte, system int) []byte {
	return c.systems().Append(dst, uint64(system), c.SystemTokens*BytesPerToken)
}

// UserText appends the user message of turn k.
func (c Chat) UserText(dst []byte, s *Session, k int) []byte {
	return c.users(s).Append(dst, uint64(k), s.Turns[k].UserTokens*BytesPerToken)
}

// SystemTokenIDs appends the system prompt as token ids.
func (c Chat) SystemTokenIDs(dst []uint32, system int) []uint32 {
	return c.systems().AppendTokens(dst, uint64(system), c.SystemTokens)
}

// UserTokenIDs appends the user message of turn k as token ids.
func (c Chat) UserTokenIDs(dst []uint32, s *Session, k int) []uint32 {
	return c.users(s).AppendTokens(dst, uint64(k), s.Turns[k].UserTokens)
}

func (c Chat) systems() Text { return Text{Seed: c.Seed} }

func (c Chat) users(s *Session) Text {
	return Text{Seed: Text{Seed: c.Seed}.state(1<<63 | uint64(s.N))}
}

func (c Chat) turns(rng *rand.Rand) int {
	if c.Continue == 0 {
		return c.MinTurns + rng.IntN(c.MaxTurns-c.MinTurns+1)
	}
	n := c.MinTurns
	for n < c.MaxTurns && rng.Float64() < c.Continue {
		n++
	}
	return n
}

// length draws a log-normal length round a median, from 1 to 8 times it.
func length(rng *rand.Rand, median int) int {
	v := float64(median) * math.Exp(0.6*rng.NormFloat64())
	return int(min(max(v, 1), 8*float64(median)))
}
