package workload

import (
	"slices"
	"time"
)

// agentMaxTokens is the limit that coding agents set on an answer.
const agentMaxTokens = 32_000

// Plan lays out all sessions, one after the other: a session's jobs stand
// together, its sub-agents' among them. Sub-agents are sessions of their own,
// numbered from a.Sessions on. a must be valid.
func (a Agents) Plan() Plan {
	b := agentPlan{Agents: a, harnesses: newRanks(a.Harnesses, a.Skew), subAgents: a.Sessions}
	last := make([]int, a.Sessions) // each session's last job
	for n := range a.Sessions {
		last[n] = b.session(n, last)
	}
	return Plan{Name: a.Name, Jobs: b.jobs}
}

type agentPlan struct {
	Agents
	harnesses ranks
	jobs      []Job
	waits     waitList
	subAgents int // the number of the next one
}

// session adds session n and returns its last job.
func (b *agentPlan) session(n int, last []int) int {
	rng := b.rand(n, -1)
	harness := Span{contentID(b.Seed, systemContent, b.harnesses.draw(rng), 0), b.HarnessTokens}
	turns := b.Turns.tokens(rng)
	c := agentContext{seed: b.Seed, session: n}
	c.add(harness)
	c.add(Span{contentID(b.Seed, userContent, n, 0), b.FirstTokens.tokens(rng)})
	at := time.Duration(rng.Float64() * float64(b.Ramp))
	after := seconds(b.Pause.draw(rng))
	var waits []int
	if n >= b.Concurrent {
		at, waits = 0, b.waits.of(last[n-b.Concurrent])
	} else {
		after = 0
	}
	forked := false
	for k := range turns {
		s := b.step(n, k)
		if k > 0 {
			after = b.appended(&c, s, k, forked)
		}
		summing := c.tokens > b.ContextTokens
		if summing {
			s.output = s.summary
		}
		answer := Span{contentID(b.Seed, answerContent, n, k), s.output}
		job := b.add(Job{Session: n, Turn: k, At: at, Waits: waits, After: after, Prompt: c.prompt(), Answer: answer})
		at, waits, forked = 0, b.waits.of(job), false
		switch {
		case summing:
			c = agentContext{seed: b.Seed, session: n}
			c.add(harness)
			c.add(answer)
		default:
			c.answer(answer, k)
			if s.forks > 0 && k+1 < turns {
				waits, forked = b.fork(&c, s.forks, job), true
			}
		}
	}
	return len(b.jobs) - 1
}

// appended adds to the context what call k brings, and returns how long it
// comes after what it waits for.
func (b *agentPlan) appended(c *agentContext, s agentStep, k int, forked bool) time.Duration {
	switch {
	case forked: // the sub-agents' reports
		c.add(Span{contentID(b.Seed, taskContent, c.session, k), s.appended})
		return 0
	case s.user:
		c.strip(b.Reasoning)
		c.add(Span{contentID(b.Seed, userContent, c.session, k), s.appended})
	default:
		c.add(Span{contentID(b.Seed, toolContent, c.session, k), s.appended})
	}
	return s.wait
}

// fork adds sub-agents that start from context c when job has ended, and
// returns their last jobs.
func (b *agentPlan) fork(c *agentContext, agents, job int) []int {
	ends := make([]int, agents)
	for i := range ends {
		n := b.subAgents
		b.subAgents++
		sub := agentContext{seed: b.Seed, session: n, spans: slices.Clone(c.spans), tokens: c.tokens}
		turns := b.ForkTurns.tokens(b.rand(n, -1))
		waits := b.waits.of(job)
		for k := range turns {
			s := b.step(n, k)
			kind, after := toolContent, s.wait
			if k == 0 {
				kind, after = taskContent, 0
			}
			sub.add(Span{contentID(b.Seed, kind, n, k), s.appended})
			answer := Span{contentID(b.Seed, answerContent, n, k), s.output}
			ends[i] = b.add(Job{Session: n, Turn: k, Waits: waits, After: after, Prompt: sub.prompt(), Answer: answer})
			sub.answer(answer, k)
			if sub.tokens > b.ContextTokens {
				break
			}
			waits = b.waits.of(ends[i])
		}
	}
	return ends
}

func (b *agentPlan) add(j Job) int {
	j.MaxTokens = agentMaxTokens
	b.jobs = append(b.jobs, j)
	return len(b.jobs) - 1
}

// agentContext is what a session's next prompt will begin with. Prompts are
// leading parts of one array until the harness rewrites the context.
type agentContext struct {
	seed    uint64
	session int
	spans   []Span
	tokens  int
	answers []answerAt // since the last user's message
}

type answerAt struct{ span, turn int }

func (c *agentContext) add(s Span) {
	c.spans = append(c.spans, s)
	c.tokens += s.Tokens
}

func (c *agentContext) answer(s Span, turn int) {
	c.answers = append(c.answers, answerAt{len(c.spans), turn})
	c.add(s)
}

func (c *agentContext) prompt() []Span { return c.spans[:len(c.spans):len(c.spans)] }

// strip takes the reasoning from the latest loop's answers. What stays of an
// answer is another content, since it does not begin as the answer began.
func (c *agentContext) strip(reasoning float64) {
	c.spans = slices.Clone(c.spans)
	for _, a := range c.answers {
		s := &c.spans[a.span]
		visible := max(1, int(float64(s.Tokens)*(1-reasoning)))
		c.tokens += visible - s.Tokens
		*s = Span{contentID(c.seed, visibleContent, c.session, a.turn), visible}
	}
	c.answers = c.answers[:0]
}
