package workload

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every published figure of [DefaultAgents] is met within 10 %, the share of
// cached input within the range itself.
func TestDefaultAgentsFitWhatIsPublished(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		a := DefaultAgents(seed, 64)
		a.Sessions = 1500 // enough for the p90 of pauses to be known to 4 %
		p := a.Plan()
		s := Stats(&p, 16)
		var turns, tools, pauses []float64
		for i := range p.Jobs {
			j := &p.Jobs[i]
			if j.Session >= a.Sessions {
				continue
			}
			for len(turns) <= j.Session {
				turns = append(turns, 0)
			}
			turns[j.Session]++
			switch {
			case j.Turn == 0 || len(j.Waits) > 1 || j.After == 0:
			case a.step(j.Session, j.Turn).user:
				pauses = append(pauses, j.After.Seconds())
			default:
				tools = append(tools, j.After.Seconds())
			}
		}
		within := func(what string, got, low, high float64) {
			t.Helper()
			if got < 0.9*low || got > 1.1*high {
				t.Errorf("seed %d: %s is %.4g, published %.4g to %.4g", seed, what, got, low, high)
			}
		}
		within("median cached prefix", s.CachedTokens.P50, 120e3, 120e3)
		within("median of new tokens", s.FreshTokens.P50, 870, 870)
		within("median output", s.OutputTokens.P50, 200, 250)
		within("input to output", s.InputTokens.Mean/s.OutputTokens.Mean, 131, 131)
		within("median of turns", figures(turns).P50, 33, 33)
		if s.CachedShare < 0.94 || s.CachedShare > 0.96 {
			t.Errorf("seed %d: %.4f of input cached, published 0.94 to 0.96", seed, s.CachedShare)
		}
		pause := figures(pauses)
		within("median pause", pause.P50, 86, 86)
		within("p90 of pauses", pause.P90, 21*60, 21*60)
		within("median tool time", figures(tools).P50, 0.13, 0.63)
		longest, all := 0.0, 0.0
		for i, v := range tools { // sorted by figures
			all += v
			if i >= len(tools)*95/100 {
				longest += v
			}
		}
		within("the longest 5 % of tool calls' share of the time", longest/all, 0.92, 0.92)
	}
}

func TestAgentsLaws(t *testing.T) {
	for _, a := range []Agents{DefaultAgents(1, 16), AgentsSmall(1, 64)} {
		a.Sessions = 100
		p := a.Plan()
		lawful(t, &p)
		extended, stripped, compacted, forked := 0, 0, 0, 0
		last := make(map[int]int)  // session → its latest job
		loops := make(map[int]int) // session → length of the prompt that its latest loop began with
		waitedFor := make(map[int]bool)
		for i := range p.Jobs {
			j := &p.Jobs[i]
			for _, w := range j.Waits {
				waitedFor[w] = waitedFor[w] || j.Session < a.Sessions
			}
			before, ok := last[j.Session]
			last[j.Session] = i
			if !ok && j.Session < a.Sessions {
				place := j.Session - a.Concurrent
				if (place >= 0) != (len(j.Waits) == 1) || (place >= 0 && j.Waits[0] != last[place]) || j.At > a.Ramp {
					t.Fatalf("session %d starts by %+v", j.Session, j)
				}
				loops[j.Session] = len(j.Prompt)
				continue
			}
			if !ok { // a sub-agent takes up where its parent's answer ended
				forked++
				before = j.Waits[0]
			} else if !slices.Contains(j.Waits, before) && len(j.Waits) == 1 && p.Jobs[j.Waits[0]].Session == j.Session {
				t.Fatalf("job %d waits for %v, not for its session's turn before", i, j.Waits)
			}
			step := a.step(j.Session, j.Turn)
			if step.user && j.Session >= a.Sessions {
				t.Fatalf("job %d: a user talks to sub-agent %d", i, j.Session)
			}
			former := append(slices.Clone(p.Jobs[before].Prompt), p.Jobs[before].Answer)
			common := 0
			for common < min(len(former), len(j.Prompt)) && former[common] == j.Prompt[common] {
				common++
			}
			switch {
			case common == len(former):
				extended++
			case p.Jobs[before].PromptTokens() > a.ContextTokens:
				compacted++
				loops[j.Session] = len(j.Prompt)
				if common != 1 || j.Prompt[1] != p.Jobs[before].Answer || len(j.Prompt) != 3 {
					t.Fatalf("job %d after a full context: %v", i, j.Prompt)
				}
			case step.user:
				stripped++
				if len(j.Prompt) != len(former)+1 || common != loops[j.Session] {
					t.Fatalf("job %d comes with a user's message and shares %d spans of %d, want %d", i, common, len(former), loops[j.Session])
				}
				loops[j.Session] = len(j.Prompt)
			default:
				t.Fatalf("job %d (session %d turn %d) shares %d spans of %d for no reason", i, j.Session, j.Turn, common, len(former))
			}
		}
		for session, job := range last {
			if session >= a.Sessions && !waitedFor[job] {
				t.Errorf("nobody waits for the end of sub-agent %d", session)
			}
		}
		if extended < 5*stripped || stripped == 0 || forked == 0 || (compacted == 0 && a.Name == "agents") {
			t.Errorf("%s: %d turns extend, %d stripped, %d compacted, %d sub-agents", a.Name, extended, stripped, compacted, forked)
		}
	}
}

func TestAgentsAreTheSameForAnyNumberOfPlaces(t *testing.T) {
	plan := func(seed uint64, concurrent int) Plan {
		a := AgentsSmall(seed, concurrent)
		a.Sessions = 60
		return a.Plan()
	}
	few, many := plan(1, 7), plan(1, 50)
	if !reflect.DeepEqual(few, plan(1, 7)) {
		t.Fatal("equal seeds, other plans")
	}
	if reflect.DeepEqual(few.Jobs, plan(2, 7).Jobs) {
		t.Fatal("seeds 1 and 2 give one plan")
	}
	if len(few.Jobs) != len(many.Jobs) {
		t.Fatalf("%d jobs on 7 places, %d on 50", len(few.Jobs), len(many.Jobs))
	}
	for _, p := range []*Plan{&few, &many} {
		for i := range p.Jobs {
			if j := &p.Jobs[i]; j.Session < 60 && j.Turn == 0 { // when it starts is the places' affair
				j.At, j.After, j.Waits = 0, 0, nil
			}
		}
	}
	for i := range few.Jobs {
		if !reflect.DeepEqual(few.Jobs[i], many.Jobs[i]) {
			t.Fatalf("job %d is %+v on 7 places, %+v on 50", i, few.Jobs[i], many.Jobs[i])
		}
	}
}

func TestAgentsValidate(t *testing.T) {
	for _, a := range []Agents{DefaultAgents(1, 64), AgentsSmall(1, 160)} {
		if err := a.Validate(); err != nil {
			t.Error(err)
		}
	}
	bad := DefaultAgents(1, 0)
	bad.UserShare, bad.Turns.Sigma, bad.Pause.Max, bad.Ramp = 1.5, math.NaN(), 0, -time.Second
	err := bad.Validate()
	for _, says := range []string{"concurrent is 0", "user share is 1.5", "turns are", "pause is", "ramp is -1s"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v does not say %q", err, says)
		}
	}
}
