package core

import (
	"testing"

	"github.com/rhizome-router/rhizome/index"
)

// BenchmarkReceive is what a replica does with the batches that a peer read:
// 16 engines whose caches are full, so that as many blocks go as come, 16 a
// batch. An op is a block that comes or goes, decoded, applied and shown in the
// index.
func BenchmarkReceive(b *testing.B) {
	for _, native := range []bool{true, false} {
		name := map[bool]string{true: "native", false: "engine hashes"}[native]
		b.Run(name, func(b *testing.B) {
			churn := NewChurn(16, 16, 5000, native)
			from := New(Config{Self: Replica{Name: "a"}}, new(Shown))
			to := New(Config{Self: Replica{Name: "b"}}, &Shown{Index: index.New(index.Config{})})
			from.Up(1, "b")
			to.Up(1, "a")
			bytes, ops := 0, 0
			var frames [][]byte
			round := func(batches int) {
				for e := range churn.Engines() {
					for range batches {
						seq, batch, n := churn.Next(e)
						ops += n
						if _, err := from.Publish(1, churn.ID(e), true, seq, batch); err != nil {
							b.Fatal(err)
						}
					}
				}
				from.flush()
				for _, m := range from.Out() {
					if m.Class == Live {
						frames = append(frames, m.Frame)
						bytes += len(m.Frame)
					}
				}
			}
			receive := func() {
				for _, f := range frames {
					if err := to.Receive(1, "a", f); err != nil {
						b.Fatal(err)
					}
				}
				frames = frames[:0]
			}
			round(churn.FillBatches() + 10)
			receive()
			bytes, ops = 0, 0
			for b.Loop() {
				b.StopTimer()
				round(10)
				b.StartTimer()
				receive()
			}
			b.ReportMetric(float64(ops)/b.Elapsed().Seconds(), "ops/s")
			b.ReportMetric(float64(bytes)/float64(ops), "bytes/op")
			if to.stats.Duplicates > 0 || to.stats.Refused > 0 {
				b.Fatalf("%+v", to.stats)
			}
		})
	}
}
