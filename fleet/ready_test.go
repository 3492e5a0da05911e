package fleet

import (
	"log/slog"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/index"
)

// TestBR44_OneHungWorkerDelaysReadinessAndNoMore
func TestBR44_OneHungWorkerDelaysReadinessAndNoMore(t *testing.T) {
	var now clock.Virtual
	f, err := New(Config{}, Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: &now, Log: slog.New(slog.DiscardHandler)},
		[]engine.Spec{{URL: "http://a:1"}, {URL: "http://b:1"}}, func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil })
	if err != nil {
		t.Fatal(err)
	}
	if now.Advance(time.Hour); f.Ready() == nil {
		t.Error("ready without any worker")
	}
	f.began = now.Now()
	for i, m := range f.View().Members {
		m.SetHealthy(true)
		c := m.Cache()
		c.Known, c.Live = ByEvents, i == 0 // the other one's events don't come
		m.SetCache(c)
	}
	if now.Advance(29 * time.Second); f.Ready() == nil {
		t.Error("ready before all are followed")
	}
	now.Advance(2 * time.Second)
	if err := f.Ready(); err != nil {
		t.Errorf("after the warm-up: %v", err)
	}
}
