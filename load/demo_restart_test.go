package load

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/engine/emulator"
)

// The last worker restarts once, when it is time, and what goes wrong with it is
// told.
func TestDemoRestartsAWorker(t *testing.T) {
	boom := errors.New("boom")
	for _, fails := range []error{nil, boom} {
		synctest.Test(t, func(t *testing.T) {
			g := newGround()
			defer g.net.close()
			var out bytes.Buffer
			cfg := g.config(&out)
			cfg.Once, cfg.Duration, cfg.RestartWorkerAfter = true, 10*time.Second, 4*time.Second
			began := time.Now()
			var restarted []int
			start := cfg.StartWorkers
			cfg.StartWorkers = func(ctx context.Context, n int) (*Workers, error) {
				w, err := start(ctx, n)
				w.Restart = func(i int) error {
					restarted = append(restarted, i)
					if at := time.Since(began); at < 4*time.Second || at > 5*time.Second {
						t.Errorf("restarted after %v", at)
					}
					return fails
				}
				return w, err
			}
			sum, err := Demo(t.Context(), cfg)
			if !errors.Is(err, fails) || len(restarted) != 1 || restarted[0] != 1 || fails == nil && sum.WorkerRestarts != 1 {
				t.Errorf("restarted %v, %+v, %v", restarted, sum, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := newGround()
		defer g.net.close()
		var out bytes.Buffer
		cfg := g.config(&out)
		cfg.RestartWorkerAfter, cfg.Duration = time.Millisecond, time.Second
		if _, err := Demo(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "can't be restarted") {
			t.Error(err)
		}
	})
}

// The router ends when no request is under way, conversations wait until the
// next one serves, and the account goes on.
func TestDemoRestartsTheRouter(t *testing.T) {
	boom := errors.New("boom")
	for _, fails := range []error{nil, boom} {
		synctest.Test(t, func(t *testing.T) {
			g := newGround()
			defer g.net.close()
			var out bytes.Buffer
			cfg := g.config(&out)
			cfg.Once, cfg.Duration, cfg.RestartRouterAfter = true, 10*time.Second, 5*time.Second
			var began []time.Duration
			zero := time.Now()
			start := cfg.StartRouter
			cfg.StartRouter = func(ctx context.Context, lines []string) (*Router, error) {
				if len(began) > 0 && fails != nil {
					return nil, fails
				}
				began = append(began, time.Since(zero))
				time.Sleep(500 * time.Millisecond)
				return start(ctx, lines)
			}
			sum, err := Demo(t.Context(), cfg)
			if !errors.Is(err, fails) {
				t.Fatal(err)
			}
			if fails != nil {
				if strings.Join(g.closed, " ") != "router workers" {
					t.Errorf("closed %v", g.closed)
				}
				return
			}
			if strings.Join(g.closed, " ") != "router router workers" || len(began) != 2 || began[1] < 5*time.Second || began[1] > 6*time.Second {
				t.Errorf("closed %v, routers began %v", g.closed, began)
			}
			if sum.Failed != 0 || sum.RouterRestarts != 1 || sum.CachedTokensActual != 2*12_301 || sum.CachedTokensAbsError != 2*1_400 {
				t.Errorf("%+v", sum)
			}
			if one, two := sum.HitShareFirstHalf, sum.HitShareSecondHalf; !(one > 0 && two > 0 && one < 0.1 && two < 0.1) { // 7 tokens of each prompt
				t.Errorf("hit share %v, then %v", one, two)
			}
		})
	}
}

func TestGateWaitsUntilAllAreOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		ctx, cancel := context.WithCancel(t.Context())
		if g.enter(ctx) != nil || g.enter(ctx) != nil {
			t.Fatal("shut at first")
		}
		var open func()
		var wg sync.WaitGroup
		wg.Go(func() { open = g.shut() })
		g.leave()
		synctest.Wait()
		if open != nil {
			t.Fatal("shut with one inside")
		}
		wg.Go(func() {
			if g.enter(ctx) == nil {
				t.Error("entered a shut gate")
			}
		})
		synctest.Wait()
		cancel()
		g.leave()
		wg.Wait()
		wg.Go(func() {
			if g.enter(t.Context()) != nil {
				t.Error("a gate that opened lets nobody in")
			}
		})
		synctest.Wait()
		open()
		wg.Wait()
		g.leave()
		g.shut()() // at once: nobody is inside
	})
}

func TestStressShapesTheDemo(t *testing.T) {
	for _, c := range []struct{ duration, restart time.Duration }{{0, 10 * time.Second}, {6 * time.Second, 3 * time.Second}} {
		cfg, fleet := Stress(DemoConfig{Once: true, Duration: c.duration}, emulator.GroupConfig{})
		if cfg.RestartWorkerAfter != c.restart || cfg.Chat.Validate() != nil || cfg.Chat.TokenShare != 0 || fleet.EventDelay != 50*time.Millisecond || fleet.Template != emulator.TemplateThinking {
			t.Errorf("%v: %+v, %+v", c.duration, cfg, fleet)
		}
	}
}
