package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/route"
)

// sessionsOf is how many sessions TestSessionsStayOnTheirWorkers plays: the
// variable RHIZOME_TEST_SESSIONS, or 108.
func sessionsOf(t *testing.T) int {
	text := os.Getenv("RHIZOME_TEST_SESSIONS")
	if text == "" {
		return 108
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("RHIZOME_TEST_SESSIONS is %q: want a number of sessions", text)
	}
	return n
}

// longPrompt is the prompt of a session's turn. It is so long that to compute it
// elsewhere takes 30 times as long as to go on with it: on a machine that is busy
// with other things a worker looks 5 times as slow as another, but not that.
func longPrompt(session, turn int) []uint32 {
	ids := make([]uint32, 8192+64*turn)
	for i := range ids {
		ids[i] = (uint32(session)*2654435761+uint32(i)*40503)>>8%30_000 + 10
	}
	return ids
}

// The second turn of a session finds the worker of its first one, 100 ms after
// that one's end and through another replica, in 99 of 100 sessions: three
// replicas, each a process of its own, over six workers. Sessions come in rounds,
// so that a second turn meets other second turns only: behind another's long
// prompt, to leave may be right.
func TestSessionsStayOnTheirWorkers(t *testing.T) {
	const round, atOnce = 36, 6
	sessions := sessionsOf(t)
	c := newCluster(t, 0, 6)
	for range 3 {
		s, _ := c.startProcess()
		c.replicas = append(c.replicas, s)
	}
	c.awaitMesh()
	c.awaitReaders()

	var mu sync.Mutex
	homes, used := make([]string, sessions), make(map[string]int)
	var moves []string
	var longest time.Duration
	each := func(from, to int, do func(n int) error) {
		var wg sync.WaitGroup
		defer wg.Wait()
		for first := range atOnce {
			wg.Go(func() {
				for n := from + first; n < to; n += atOnce {
					if err := do(n); err != nil {
						t.Errorf("session %d: %v", n, err)
						return
					}
				}
			})
		}
	}
	for from := 0; from < sessions; from += round {
		to := min(from+round, sessions)
		each(from, to, func(n int) (err error) {
			homes[n], _, err = c.replicas[n%3].turn(t, longPrompt(n, 0))
			return err
		})
		longest = max(longest, c.awaitAgreement())
		each(from, to, func(n int) error {
			other := c.replicas[(n+1+n/3%2)%3]
			worker, id, err := other.turn(t, longPrompt(n, 1))
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if used[worker]++; worker != homes[n] {
				moves = append(moves, explained(t, other, id))
			}
			return nil
		})
	}
	t.Logf("%d of %d sessions stayed on their workers; all replicas knew the same %v after first turns at the latest", sessions-len(moves), sessions, longest)
	for _, m := range moves[:min(len(moves), 5)] {
		t.Log("moved: ", m)
	}
	if 100*len(moves) > sessions {
		t.Errorf("%d of %d sessions left their workers", len(moves), sessions)
	}
	if len(used) != 6 {
		t.Errorf("only %d of 6 workers were used: %v", len(used), used)
	}
	for i, s := range c.replicas {
		if m := s.mesh(t); m.Corruption != 0 || m.LostOps != 0 || m.Refused != 0 || m.DroppedFrames != 0 || m.AppliedBlocks == 0 {
			t.Errorf("replica %d: %d corrupted, %d lost, %d refused, %d dropped, %d applied", i, m.Corruption, m.LostOps, m.Refused, m.DroppedFrames, m.AppliedBlocks)
		}
	}
}

// awaitAgreement waits for 100 ms, and longer where the machine is so busy that
// replicas come to nothing: until nothing that was in flight counts any more, and
// all replicas know as much of each worker and have learned nothing new for 100
// ms. It returns when they began to agree.
func (c *cluster) awaitAgreement() (after time.Duration) {
	c.t.Helper()
	const quiet = 100 * time.Millisecond
	began := time.Now()
	var last string
	since := began
	await(c.t, "all replicas know the same", func() bool {
		known := make([]string, len(c.replicas))
		idle := true
		for i, s := range c.replicas {
			var index fleet.IndexState
			s.get(c.t, "/index", &index)
			var caches []string
			for _, cache := range index.Caches {
				caches = append(caches, fmt.Sprint(cache.Worker, cache.Next, cache.HeldTokens))
			}
			slices.Sort(caches)
			known[i] = fmt.Sprint(caches)
			idle = idle && s.mesh(c.t).Pages[core.Loads.String()] <= len(c.replicas) // their mean request times
		}
		if known = slices.Compact(known); len(known) > 1 || !idle || known[0] != last {
			last, since = known[0], time.Now()
			return false
		}
		return time.Since(since) >= quiet
	})
	return since.Sub(began)
}

// explained is a decision in some lines.
func explained(t *testing.T, s *served, id string) string {
	var e route.Explanation
	s.get(t, "/explain/"+id, &e)
	var b strings.Builder
	fmt.Fprintf(&b, "%s, of %d tokens\n", e.Why, e.PromptTokens)
	for _, c := range e.Candidates {
		fmt.Fprintf(&b, "  %s hit %d, queued %d, decoding %d, %.0f µs: queue %.0f, prefill %.0f, own decode %.0f; step %.0f µs by %d samples\n",
			c.Worker, c.HBMTokens, c.QueuedTokens, c.Decoding, c.CostMicros, c.Terms.QueueMicros, c.Terms.PrefillMicros, c.Terms.OwnDecodeMicros, c.Fit.Constants.StepMicros, c.Fit.Samples)
	}
	return b.String()
}
