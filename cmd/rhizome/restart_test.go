package main

import (
	"bytes"
	"log/slog"
	"strings"
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

// A router that is ended and comes back, with what its state directory has, lets
// no request fail and finds what it kept. What a restart costs of the hit share
// is no matter of a few seconds on a machine that may be busy: package route
// tests it in virtual time, and rhizome demo --once --restart-router shows it.
func TestRestartedRouterFindsItsSessions(t *testing.T) {
	const speedup, duration = 10, 5 * time.Second
	var out, errs bytes.Buffer
	c := &demoCommand{Policy: "rhizome", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", StateDir: t.TempDir()}
	sh := &shell{ctx: t.Context(), stdout: &out, stderr: &errs, level: new(slog.LevelVar),
		log: slog.New(slog.NewTextHandler(&errs, nil))}
	sum, err := load.Demo(t.Context(), load.DemoConfig{
		Workers: 3, Duration: duration, Once: true, Speedup: speedup, Chat: agentLoops(), NameSessions: true, RestartRouterAfter: duration / 2,
		StartWorkers: load.EmulatedWorkers(emulator.GroupConfig{AnyPorts: true, Config: emulator.Config{
			Speedup: speedup, Template: emulator.TemplateThinking, PoolTokens: 200_000}}),
		StartRouter: c.startRouter(sh), Out: &out, JSON: true,
	})
	if err != nil || sum.Failed != 0 || sum.RouterRestarts != 1 {
		t.Fatalf("%v, %+v\n%s", err, sum, errs.String())
	}
	log := errs.String()
	if n := strings.Count(log, "state restored"); n != 1 || strings.Contains(log, "sessions=0") || strings.Contains(log, "starting without") {
		t.Errorf("restored %d times:\n%s", n, log)
	}
}
