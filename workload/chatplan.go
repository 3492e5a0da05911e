package workload

import (
	"math"
	"time"
)

// Plan returns the first sessions of c as a plan. A turn's prompt is the
// session's system prompt, then all earlier user messages and answers, then a
// new user message. c must be valid.
//
// In open loop, jobs are ordered by their At, which for a later turn is when it
// would be sent if answers took no time. In closed loop place p plays sessions
// p, p+c.Concurrent, … one after the other, and a session's jobs stand together.
func (c Chat) Plan(name string, sessions int) Plan {
	b := chatPlan{Chat: c, systems: newRanks(c.SystemPrompts, c.Skew)}
	b.jobs = make([]Job, 0, sessions*b.meanTurns())
	last := make([]int, sessions)
	for n := range sessions {
		var waits []int
		if c.StartsPerSecond == 0 && n >= c.Concurrent {
			waits = b.waits.of(last[n-c.Concurrent])
		}
		b.session(n, waits)
		last[n] = len(b.jobs) - 1
	}
	if c.StartsPerSecond > 0 {
		byTime(b.jobs)
	}
	return Plan{Name: name, Jobs: b.jobs}
}

type chatPlan struct {
	Chat
	systems ranks
	jobs    []Job
	waits   waitList
	start   time.Duration // of the latest session in open loop
}

func (c Chat) meanTurns() int {
	if c.Continue > 0 {
		return c.MinTurns + 1
	}
	return (c.MinTurns+c.MaxTurns)/2 + 1
}

// session adds the jobs of session n, whose first turn waits for others or, if
// for none, starts at the session's time. All its prompts are leading parts of
// one array.
func (b *chatPlan) session(n int, waits []int) {
	s := b.Chat.session(n, b.systems)
	b.start += s.Gap
	at := b.start
	spans := make([]Span, 0, 2*len(s.Turns)+1)
	spans = append(spans, Span{contentID(b.Seed, systemContent, s.System, 0), b.SystemTokens})
	for k, turn := range s.Turns {
		after := turn.After
		switch {
		case k == 0 && b.StartsPerSecond > 0:
			after = 0 // the gap is all there is before a session
		case k == 0 && len(waits) == 0:
			at, after = turn.After, 0
		case b.StartsPerSecond > 0:
			at += turn.After
		default:
			at = 0
		}
		spans = append(spans, Span{contentID(b.Seed, userContent, n, k), turn.UserTokens})
		answer := Span{contentID(b.Seed, answerContent, n, k), turn.OutputTokens}
		b.jobs = append(b.jobs, Job{
			Session: n, Turn: k, At: at, Waits: waits, After: after,
			Prompt: spans[:len(spans):len(spans)], Answer: answer,
		})
		spans = append(spans, answer)
		waits = b.waits.of(len(b.jobs) - 1)
	}
}

// SyntheticChat is an open-loop chat for a fleet of that many workers: 1.3 new
// sessions a second for each of them over the given time (their number is
// fixed, the arrivals random), 16 system prompts of 2,000 tokens, 3 to 8 turns,
// exponential think times of 15 s. That makes 7 requests a second and worker of
// 4,000 tokens each, 370 of them new: on a worker of the class of Llama-3-70B on
// four H100 (65 µs of prefill a token) prefill takes 17 % of the time if every
// hit is made, and 190 % if none is.
func SyntheticChat(seed uint64, workers int, length time.Duration) Plan {
	c := Chat{
		Seed: seed, StartsPerSecond: 1.3 * float64(workers),
		SystemPrompts: 16, SystemTokens: 2000, Skew: 1,
		MinTurns: 3, MaxTurns: 8,
		UserTokens: 300, OutputTokens: 250,
		Think: 15 * time.Second,
	}
	return c.Plan("synthetic-chat", sessionsIn(c.StartsPerSecond, length))
}

// ChatFleet is the multi-turn chat of the published benchmark of gateway
// meshes, scaled to the number of workers.
//
// Published (smg-project/smg, pull requests 2438 and 2439): 240 simulated
// workers and 8 gateways, 611 new sessions a second for 180 s, 163,958 requests,
// which is 1.49 a session; a session may go on after a think time; system
// prompts come from a pool. The same at 5.1 sessions a second and worker is said
// to be about twice what the engines can do.
//
// Not published, and chosen here: a session goes on with probability 1/3 after
// each of at most 8 turns (mean 1.5); 256 system prompts of 3,000 tokens, which
// are more than one worker's KV pool holds, with Zipf shares (skew 1); user messages of 900
// and answers of 200 tokens (medians); 8 s of think time (mean). That makes 3.8
// requests a second and worker of 4,750 tokens each, 1,100 to 1,250 of them new:
// on a worker of the class of Llama-3-70B on four H100 prefill takes 29 % of the
// time if every hit is made, and 118 % if none is. Clients name no session, since that benchmark's gateways use none.
func ChatFleet(seed uint64, workers int, length time.Duration) Plan {
	c := Chat{
		Seed: seed, StartsPerSecond: 611.0 / 240 * float64(workers),
		SystemPrompts: 256, SystemTokens: 3000, Skew: 1,
		MinTurns: 1, MaxTurns: 8, Continue: 1.0 / 3,
		UserTokens: 900, OutputTokens: 200,
		Think: 8 * time.Second,
	}
	p := c.Plan("chat-fleet", sessionsIn(c.StartsPerSecond, length))
	for i := range p.Jobs {
		p.Jobs[i].Hidden = true
	}
	return p
}

// sessionsIn is how many sessions start on average in a time, at least 1.
func sessionsIn(perSecond float64, length time.Duration) int {
	return max(1, int(math.Round(perSecond*length.Seconds())))
}
