package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// Agents generates the work of coding agents: long loops in which each step
// appends a tool's result to the context and calls the model again. Sessions
// start from one of a few harnesses (system prompt and tools), so that they
// share prefixes. Now and then a user writes, sub-agents fork from the context,
// or the context is full and is compacted to a summary.
//
// The loop is closed: Concurrent places exist, and place p plays sessions p,
// p+Concurrent, … one after the other. Every draw comes from a stream of its
// own for (seed, session, step), so the sessions are the same however many
// places there are, and whoever routes them.
type Agents struct {
	Name string
	Seed uint64
	// Concurrent is the number of places, Sessions that of all sessions, sub-agents
	// not counted.
	Concurrent, Sessions int
	// Ramp is the time over which the places take up their first sessions.
	Ramp time.Duration

	// Harnesses is how many there are, of HarnessTokens each; session shares
	// fall as rank^-Skew (Zipf).
	Harnesses, HarnessTokens int
	Skew                     float64
	// Turns is the number of model calls of a session. FirstTokens is its first
	// message, with what the harness tells of the project.
	Turns, FirstTokens LogNormal
	// AppendTokens is a tool's result, OutputTokens an answer.
	AppendTokens, OutputTokens LogNormal
	// ToolTime passes between an answer and the call with the tool's result.
	ToolTime Mixture

	// UserShare is the share of calls that come with a user's message of
	// UserTokens, in place of a tool's result, after a Pause in seconds. The
	// harness then strips the reasoning, a share Reasoning of each answer, from
	// the answers since the user's message before: the prompt continues the
	// former one only up to the first of them.
	UserShare  float64
	UserTokens LogNormal
	Pause      LogNormal
	Reasoning  float64

	// ContextTokens is the length above which a call asks for a summary of
	// SummaryTokens, which is all that the next call keeps after the harness.
	ContextTokens int
	SummaryTokens LogNormal

	// ForkShare is the share of answers that send 1 to MaxForks sub-agents to
	// work at once; the session goes on when all have ended. A sub-agent takes
	// the whole context with it, and makes ForkTurns calls.
	ForkShare float64
	MaxForks  int
	ForkTurns LogNormal
}

// DefaultAgents is fit to what has been published of coding agents:
//
//   - Zhu et al., "TraceLab: Characterizing Coding Agent Workloads for LLM
//     Serving" (arXiv:2606.30560; 357k calls of 4,265 sessions of Claude Code and
//     Codex): per call a cached prefix of 120k tokens, 870 new tokens and 200 to
//     250 tokens of output (medians); 95.8 % of all input cached; tool times with
//     medians of 0.13 s (Claude Code) and 0.63 s (Codex), the longest 5 % of calls
//     holding 92 % of the time; pauses of users of 86 s (median) and 21 min (p90).
//   - The vLLM project's "Serving Agentic Workloads at Scale with vLLM x Mooncake"
//     (May 2026) and its traces of Codex on SWE-bench Pro (data set
//     Inferact/codex_swebenchpro_traces): 33 calls a session, 131 tokens of input
//     for one of output, 94.2 % of input cached, 12k tokens of context at the
//     first call.
//
// The two disagree on what one call's output is worth (TraceLab has 294:1, with
// longer contexts); the fit takes contexts from the first and the ratio from
// the second, so outputs have a heavier tail than in either.
func DefaultAgents(seed uint64, concurrent int) Agents {
	return Agents{
		Name: "agents", Seed: seed, Concurrent: concurrent, Sessions: 400, Ramp: 2 * time.Minute,
		Harnesses: 8, HarnessTokens: 24_000, Skew: 1,
		Turns:        LogNormal{33, 1.0, 2, 400},
		FirstTokens:  LogNormal{36_000, 0.7, 500, 90_000},
		AppendTokens: LogNormal{690, 1.95, 20, 50_000},
		OutputTokens: LogNormal{225, 1.72, 10, 24_000},
		ToolTime:     Mixture{LogNormal{0.3, 1.2, 0.005, 20}, LogNormal{60, 1.27, 5, 3600}, 0.05},
		UserShare:    0.13,
		UserTokens:   LogNormal{150, 1.2, 5, 10_000},
		Pause:        LogNormal{86, 2.095, 1, 6 * 3600},
		Reasoning:    0.6,

		ContextTokens: 230_000, SummaryTokens: LogNormal{4000, 0.5, 1000, 16_000},
		ForkShare: 0.015, MaxForks: 3, ForkTurns: LogNormal{6, 0.6, 1, 30},
	}
}

// AgentsSmall is for quick runs: contexts that grow from a shared prefix of 12k
// tokens to some 50k in about 15 calls, short tools, no long pauses. It is
// sized for 8 workers of the class of Llama-3-70B on four H100 (65 µs of
// prefill a token, 450k tokens of KV pool): a call has 2,500 new tokens of
// 29,000, 0.16 s of prefill or 1.9 s. With 64 places all is well if sessions
// stay where their context is, and workers drown if they don't. With 160 the
// live contexts (17k tokens of their own each) and the harnesses on every
// worker fill the pools.
func AgentsSmall(seed uint64, concurrent int) Agents {
	a := DefaultAgents(seed, concurrent)
	a.Name, a.Sessions, a.Ramp = "agents-small-"+strconv.Itoa(concurrent), 480, 30*time.Second
	a.Harnesses, a.HarnessTokens = 6, 12_000
	a.Turns = LogNormal{15, 0.3, 6, 30}
	a.FirstTokens = LogNormal{1500, 0.6, 100, 8000}
	a.AppendTokens = LogNormal{1200, 1, 20, 12_000}
	a.OutputTokens = LogNormal{150, 0.7, 10, 1000}
	a.ToolTime = Mixture{LogNormal{0.3, 1, 0.01, 3}, LogNormal{4, 0.5, 1, 15}, 0.05}
	a.Pause = LogNormal{5, 0.7, 1, 20}
	a.ContextTokens, a.SummaryTokens = 60_000, LogNormal{1000, 0.4, 300, 3000}
	a.ForkTurns = LogNormal{4, 0.4, 1, 8}
	return a
}

// Validate tells what is wrong with a, all of it at once.
func (a Agents) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	share := func(name string, v float64) { check(v >= 0 && v <= 1, "%s is %v, want 0 to 1", name, v) }
	check(a.Concurrent >= 1 && a.Concurrent <= 1<<20, "concurrent is %d, want 1 to 2^20", a.Concurrent)
	check(a.Sessions >= 1 && a.Sessions <= 1<<20, "sessions is %d, want 1 to 2^20", a.Sessions)
	check(a.Ramp >= 0, "ramp is %v, want no negative time", a.Ramp)
	check(a.Harnesses >= 1 && a.Harnesses <= 4096, "harnesses is %d, want 1 to 4096", a.Harnesses)
	check(a.HarnessTokens >= 1 && a.HarnessTokens < a.ContextTokens, "harness tokens is %d, want 1 to less than the context's %d", a.HarnessTokens, a.ContextTokens)
	check(a.ContextTokens <= maxTokens, "context tokens is %d, want at most %d", a.ContextTokens, maxTokens)
	check(a.Skew >= 0 && a.Skew <= 10, "skew is %v, want 0 to 10", a.Skew)
	check(a.MaxForks >= 1 && a.MaxForks <= 64, "max forks is %d, want 1 to 64", a.MaxForks)
	share("user share", a.UserShare)
	share("reasoning", a.Reasoning)
	share("fork share", a.ForkShare)
	share("tool tail share", a.ToolTime.TailShare)
	for _, l := range []struct {
		name string
		LogNormal
		most float64
	}{
		{"turns", a.Turns, 10_000}, {"fork turns", a.ForkTurns, 10_000}, {"first tokens", a.FirstTokens, maxTokens},
		{"append tokens", a.AppendTokens, maxTokens}, {"output tokens", a.OutputTokens, maxTokens},
		{"user tokens", a.UserTokens, maxTokens}, {"summary tokens", a.SummaryTokens, maxTokens},
	} {
		check(l.valid() && l.Min >= 1 && l.Max <= l.most, "%s are %+v, want 1 ≤ min ≤ median ≤ max ≤ %v and sigma 0 to 10", l.name, l.LogNormal, l.most)
	}
	for name, l := range map[string]LogNormal{"tool time": a.ToolTime.Body, "long tool time": a.ToolTime.Tail, "pause": a.Pause} { // order-free: each is checked by itself
		check(l.valid(), "%s is %+v s, want 0 ≤ min ≤ median ≤ max and sigma 0 to 10", name, l)
	}
	if len(errs) > 0 {
		return fmt.Errorf("agents workload: %w", errors.Join(errs...))
	}
	return nil
}

// agentStep is what is drawn for one call.
type agentStep struct {
	user            bool // a user's message comes with it, not a tool's result
	appended        int
	output, summary int
	wait            time.Duration
	forks           int
}

// step draws a call of a session, or of a sub-agent, to which no user talks.
func (a Agents) step(session, k int) agentStep {
	rng := a.rand(session, k)
	s := agentStep{
		user:     rng.Float64() < a.UserShare && session < a.Sessions,
		appended: a.AppendTokens.tokens(rng),
		output:   a.OutputTokens.tokens(rng),
		summary:  a.SummaryTokens.tokens(rng),
		wait:     a.ToolTime.draw(rng),
	}
	pause, said := seconds(a.Pause.draw(rng)), a.UserTokens.tokens(rng)
	if s.user {
		s.wait, s.appended = pause, said
	}
	if forks := 1 + rng.IntN(a.MaxForks); rng.Float64() < a.ForkShare {
		s.forks = forks
	}
	return s
}

// rand is the stream of one call, or for k = -1 of the session as such.
func (a Agents) rand(session, k int) *rand.Rand {
	name := append(make([]byte, 0, 48), "workload/agents/"...)
	name = strconv.AppendInt(name, int64(session), 10)
	name = strconv.AppendInt(append(name, '/'), int64(k), 10)
	return clock.Rand(a.Seed, string(name))
}
