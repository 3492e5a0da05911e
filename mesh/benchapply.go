package mesh

import (
	"errors"
	"fmt"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// pair is two cores with nothing but memory between them.
type pair struct {
	from, to *core.Core
	now      clock.Instant
	frames   [][]byte
}

func newPair() *pair {
	p := &pair{now: 1,
		from: core.New(core.Config{Self: core.Replica{Name: "a"}}, new(core.Shown)),
		to:   core.New(core.Config{Self: core.Replica{Name: "b"}}, &core.Shown{Index: index.New(index.Config{})}),
	}
	p.from.Up(p.now, "b")
	p.to.Up(p.now, "a")
	p.exchange()
	return p
}

// exchange carries frames both ways until there are none, and returns their
// bytes.
func (p *pair) exchange() (bytes int) {
	for quiet := 0; quiet < 20; quiet++ {
		p.now = p.now.Add(tickEvery)
		p.from.Tick(p.now)
		p.to.Tick(p.now)
		for _, m := range p.from.Out() {
			bytes, quiet = bytes+len(m.Frame), 0
			_ = p.to.Receive(p.now, "a", m.Frame) // a bad frame shows in what is compared
		}
		for _, m := range p.to.Out() {
			bytes, quiet = bytes+len(m.Frame), 0
			_ = p.from.Receive(p.now, "b", m.Frame)
		}
	}
	return bytes
}

// What is applied: engines with caches of so many blocks, which store so many
// of them a batch.
const (
	applyEngines = 16
	applyBlocks  = 16
	applyHeld    = 5000
	applyTurns   = 150 // of 10 batches an engine
)

// measureApply fills in what a receiver does with ops and how long they are.
func (r *BenchReport) measureApply(engines, turns int) error {
	var err error
	if r.OpsPerSPerCore, r.BytesPerOp, r.BytesPerInsert, err = applied(false, engines, turns); err == nil {
		_, r.BytesPerOpNative, r.BytesPerInsertNative, err = applied(true, engines, turns)
	}
	return err
}

func applied(native bool, engines, turns int) (opsPerS, bytesPerOp, bytesPerInsert float64, err error) {
	p := newPair()
	churn := core.NewChurn(engines, applyBlocks, applyHeld, native)
	var cpu time.Duration
	turn := func(batches int) (bytes, ops int) {
		for e := range churn.Engines() {
			for range batches {
				seq, batch, n := churn.Next(e)
				ops += n
				if _, e := p.from.Publish(p.now, churn.ID(e), true, seq, batch); e != nil {
					err = e
				}
			}
		}
		p.now = p.now.Add(2 * tickEvery)
		p.from.Tick(p.now)
		p.frames = p.frames[:0]
		for _, m := range p.from.Out() {
			if m.Class == core.Live {
				p.frames = append(p.frames, m.Frame)
				bytes += len(m.Frame)
			}
		}
		before := cpuTime()
		for _, f := range p.frames {
			err = errors.Join(err, p.to.Receive(p.now, "a", f))
		}
		cpu += cpuTime() - before
		return bytes, ops
	}
	bytes, ops := 0, 0
	for range churn.FillBatches() / 10 {
		b, n := turn(10)
		bytes, ops = bytes+b, ops+n
	}
	bytesPerInsert = float64(bytes) / float64(ops)
	turn(10)
	bytes, ops, cpu = 0, 0, 0
	for range turns {
		b, n := turn(10)
		bytes, ops = bytes+b, ops+n
	}
	if d := p.to.Stats(); err == nil && (d.Duplicates > 0 || d.Refused > 0) {
		err = fmt.Errorf("ops were refused: %+v", d)
	}
	return float64(ops) / cpu.Seconds(), float64(bytes) / float64(ops), bytesPerInsert, err
}

// The partition that is made up for: so many streams of so many blocks, of which
// one in a hundred is news. Half of the streams are read on either side.
const (
	rejoinStreams = 100
	rejoinBlocks  = 10_000
	rejoinNews    = rejoinBlocks / 100
	rejoinBatch   = 20
)

// measureRejoin fills in what two replicas send each other after a partition
// that was short enough for what each missed to be in the other's ring.
func (r *BenchReport) measureRejoin(streams int) error {
	p := newPair()
	churn := core.NewChurn(streams, rejoinBatch, rejoinBlocks, false)
	publish := func(batches int) (bytes int, err error) {
		for e := range churn.Engines() {
			by := p.from
			if e%2 == 1 {
				by = p.to
			}
			for range batches {
				seq, batch, _ := churn.Next(e)
				bytes += len(crdt.AppendEntry(nil, crdt.Entry{Range: crdt.Range{From: seq, To: seq}, Ops: batch}))
				if _, err := by.Publish(p.now, churn.ID(e), true, seq, batch); err != nil {
					return 0, err
				}
			}
		}
		return bytes, nil
	}
	for range (rejoinBlocks - rejoinNews) / rejoinBatch / 10 {
		if _, err := publish(10); err != nil {
			return err
		}
		p.exchange()
	}
	p.from.Down(p.now, "b")
	p.to.Down(p.now, "a")
	var err error
	if r.RejoinOpsBytes, err = publish(rejoinNews / rejoinBatch); err != nil {
		return err
	}
	p.exchange()
	p.from.Up(p.now, "b")
	p.to.Up(p.now, "a")
	r.RejoinBytes = p.exchange()
	for e := range churn.Engines() {
		if a, b := p.from.Log().Stream(churn.ID(e)), p.to.Log().Stream(churn.ID(e)); a == nil || b == nil || a.Next() != b.Next() || a.Digest() != b.Digest() {
			return errors.New("two replicas do not agree after a partition")
		}
	}
	r.RejoinBytesRatio = float64(r.RejoinBytes) / float64(r.RejoinOpsBytes)
	return nil
}
