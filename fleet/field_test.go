package fleet

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// TestBR51_SeriesOfWorkersThatLeftAreGone: a thousand workers come and go, and
// the number of series is that of those who are there.
func TestBR51_SeriesOfWorkersThatLeftAreGone(t *testing.T) {
	class := func(engine.Spec) (cost.Class, error) { return cost.Generic(), nil }
	f, err := New(Config{}, Deps{Index: index.New(index.Config{}), Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 16}), Clock: &clock.Virtual{},
		Log: slog.New(slog.DiscardHandler)}, []engine.Spec{{URL: "http://10.1.0.0:1"}}, class)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.Collector())
	count := func() (n int) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			n += len(family.Metric)
		}
		return n
	}
	before := count()
	for i := range 1000 {
		if err := f.SetWorkers([]engine.Spec{{URL: fmt.Sprintf("http://10.%d.%d.%d:1", 2+i/250, i%250, i%7)}}); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after != before {
		t.Errorf("%d series of one worker, %d after a thousand came and went", before, after)
	}
	if held := f.deps.Index.Stats().OpenSlots; held > 2 {
		t.Errorf("%d slots of the index are open", held)
	}
}

// TestBR57_AFlushAndANewLifeLeaveNothing: what a worker cleared matches no more,
// and one that comes back with another block size is followed by that.
func TestBR57_AFlushAndANewLifeLeaveNothing(t *testing.T) {
	fw := newFollower(t)
	op, keys := chain(0, 100)
	batch := func(seq uint64, ops ...kv.Op) {
		fw.handle(engine.FeedEvent{Kind: engine.FeedBatch, Seq: seq, Ops: ops})
	}
	batch(0, op)
	if n := fw.matched(keys); n != 100 {
		t.Fatalf("%d of 100 blocks match", n)
	}
	batch(1, kv.Op{Kind: kv.Clear, Tiers: kv.HBM.Mask()})
	if n, held := fw.matched(keys), fw.m.Cache().HeldTokens[kv.HBM]; n != 0 || held != 0 {
		t.Errorf("after all was cleared %d blocks match, %d tokens are held", n, held)
	}
	batch(2, op)
	if n := fw.matched(keys); n != 100 {
		t.Errorf("stored again, %d of 100 blocks match", n)
	}

	// The same address, with blocks of 64 tokens and numbers from 0.
	fw.handle(engine.FeedEvent{Kind: engine.FeedReset, Seq: 0})
	if n := fw.matched(keys); n != 0 {
		t.Errorf("of the life before %d blocks match", n)
	}
	other := op
	other.BlockTokens = 64
	other.Blocks = nil
	key, otherKeys := op.Root, []kv.Key{}
	for i := range 10 {
		b := kv.Block{Hash: kv.EngineHash(1000 + i), Content: kv.Content(5000 + i)}
		other.Blocks = append(other.Blocks, b)
		key = kv.Next(key, b.Content)
		otherKeys = append(otherKeys, key)
	}
	batch(0, other)
	if c := fw.m.Cache(); c.BlockTokens != 64 || c.HeldTokens[kv.HBM] != 640 || fw.matched(otherKeys) != 10 {
		t.Errorf("blocks of %d tokens, %d held, %d match", c.BlockTokens, c.HeldTokens[kv.HBM], fw.matched(otherKeys))
	}
}

// TestBR61_SilentEventsAreTold: sockets that don't answer and ones that say
// nothing are warned of once, after a while, and it is said when they recover; a
// worker that has no events is none of these.
func TestBR61_SilentEventsAreTold(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	const grace = 30 * time.Second
	told := func() string { s := logged.String(); logged.Reset(); return s }
	fw := newFollower(t)
	m := fw.m
	now := clock.Instant(time.Hour)
	watch := make(eventsWatch)
	look := func(after time.Duration) string {
		now = now.Add(after)
		watch.look(now, grace, []*Member{m}, log)
		return told()
	}
	c := m.Cache()
	c.Known, c.BlockTokens = BySent, 16
	m.SetCache(c)
	if s := look(0) + look(time.Hour); s != "" {
		t.Errorf("without events: %s", s)
	}
	c.Known = ByEvents
	m.SetCache(c)
	if s := look(0) + look(grace-1); s != "" {
		t.Errorf("within its time: %s", s)
	}
	if s := look(1); !strings.Contains(s, "level=WARN") || !strings.Contains(s, "socket does not answer") || !strings.Contains(s, m.Worker.Spec.URL) {
		t.Errorf("after its time: %s", s)
	}
	if s := look(time.Hour); s != "" {
		t.Errorf("told twice: %s", s)
	}
	c.Live = true
	m.SetCache(c)
	if s := look(0); !strings.Contains(s, "come again") {
		t.Errorf("on recovery: %s", s)
	}
	for range stallTokens { // prompts are computed, and nothing tells of their blocks
		m.FirstToken(now, 1000)
	}
	if s := look(stallWait); s != "" {
		t.Errorf("at once: %s", s)
	}
	if s := look(1) + look(1); !strings.Contains(s, "level=WARN") || !strings.Contains(s, "no event told") || !m.Stalled(now) {
		t.Errorf("a silent socket: %s", s)
	}
	m.stall.batch()
	if s := look(0); !strings.Contains(s, "come again") {
		t.Errorf("on recovery: %s", s)
	}
}
