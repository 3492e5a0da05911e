package main

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/engine/emulator"
	"github.com/rhizome-router/rhizome/load"
	"github.com/rhizome-router/rhizome/workload"
)

// agentLoops are loops of agents: long, with short pauses for tools, from a few
// harnesses, and they say which session they are.
func agentLoops() workload.Chat {
	chat := workload.DefaultChat()
	chat.Concurrent, chat.TokenShare = 12, 0
	chat.SystemPrompts, chat.SystemTokens = 3, 3000
	chat.MinTurns, chat.MaxTurns, chat.UserTokens, chat.OutputTokens = 10, 20, 200, 60
	chat.Think, chat.PauseShare, chat.Pause = 2*time.Second, 0.1, 10*time.Second
	return chat
}

// A router that is ended and comes back, with what its state directory has,
// sends agents' sessions to where they were. Over the demo's 20 s on an idle
// machine the hit share falls by less than 3 points against a router that runs
// on (rhizome demo --once --restart-router tells); here, in a few seconds of a
// machine that may be busy, no request may fail, and what is asked afterwards
// must not fall to what strangers find, the heads.
func TestRestartedRouterFindsItsSessions(t *testing.T) {
	const speedup, duration = 10, 5 * time.Second
	play := func(restart time.Duration) load.DemoSummary {
		var out, errs bytes.Buffer
		c := &demoCommand{Policy: "rhizome", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", StateDir: t.TempDir()}
		sh := &shell{ctx: t.Context(), stdout: &out, stderr: &errs, level: new(slog.LevelVar),
			log: slog.New(slog.NewTextHandler(&errs, &slog.HandlerOptions{Level: slog.LevelError}))}
		sum, err := load.Demo(t.Context(), load.DemoConfig{
			Workers: 3, Duration: duration, Once: true, Speedup: speedup, Chat: agentLoops(), NameSessions: true, RestartRouterAfter: restart,
			StartWorkers: load.EmulatedWorkers(emulator.GroupConfig{AnyPorts: true, Config: emulator.Config{
				Speedup: speedup, Template: emulator.TemplateThinking, PoolTokens: 200_000}}),
			StartRouter: c.startRouter(sh), Out: &out, JSON: true,
		})
		if err != nil || sum.Failed != 0 {
			t.Errorf("restart after %v: %v, %+v\n%s", restart, err, sum, errs.String())
		}
		return sum
	}
	var ran, restarted load.DemoSummary
	var wg sync.WaitGroup
	wg.Go(func() { ran = play(0) })
	wg.Go(func() { restarted = play(duration / 2) })
	wg.Wait()
	t.Logf("hit share %.4f then %.4f without a restart, %.4f then %.4f with one",
		ran.HitShareFirstHalf, ran.HitShareSecondHalf, restarted.HitShareFirstHalf, restarted.HitShareSecondHalf)
	if restarted.RouterRestarts != 1 || ran.RouterRestarts != 0 {
		t.Fatalf("%d and %d restarts", restarted.RouterRestarts, ran.RouterRestarts)
	}
	if dip := ran.HitShareSecondHalf - restarted.HitShareSecondHalf; dip > 0.25 {
		t.Errorf("the restart cost %.1f points of the hit share", 100*dip)
	}
}
