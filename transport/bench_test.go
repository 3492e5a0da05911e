package transport

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
)

// BenchmarkDelta sends frames from one endpoint to another on loopback, both in
// this process: bytes/s, and frames/s from the time of an operation.
func BenchmarkDelta(b *testing.B) {
	for _, size := range []int{64, 1200, 16 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			from, to := listen(b, "a"), listen(b, "b")
			out := open(b, from, addr(to), 1)
			in := accept(b, to)
			if _, err := in.Class(); err != nil {
				b.Fatal(err)
			}
			var reader sync.WaitGroup
			reader.Go(func() {
				for {
					if _, err := in.Receive(); err != nil {
						return
					}
				}
			})
			payload := make([]byte, size)
			ctx := b.Context()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := out.Send(ctx, payload); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
			out.Close()
			reader.Wait()
		})
	}
}

// BenchmarkRaftRoundTrip writes 256 bytes on an open stream and reads them back.
func BenchmarkRaftRoundTrip(b *testing.B) {
	from, to := listen(b, "a"), listen(b, "b")
	var server sync.WaitGroup
	server.Go(func() {
		c, err := to.Raft().Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
		}
	})
	c, err := from.Raft().Dial(raft.ServerAddress(addr(to)), patience)
	if err != nil {
		b.Fatal(err)
	}
	msg := make([]byte, 256)
	for b.Loop() {
		if _, err := c.Write(msg); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, msg); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		b.Fatal(err)
	}
	server.Wait()
}

// BenchmarkGossip sends packets of memberlist's size one at a time: each is
// received before the next is sent.
func BenchmarkGossip(b *testing.B) {
	from, to := listen(b, "a"), listen(b, "b")
	msg := make([]byte, GossipPacketBytes)
	b.SetBytes(GossipPacketBytes)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := from.Gossip().WriteTo(msg, addr(to)); err != nil {
			b.Fatal(err)
		}
		<-to.Gossip().PacketCh()
	}
}

// BenchmarkHandshake is a connection from dial to hello, and its end.
func BenchmarkHandshake(b *testing.B) {
	from, to := listen(b, "a"), listen(b, "b")
	for b.Loop() {
		s, err := from.connect(b.Context(), DeltaPlane, to.Self().Addr)
		if err != nil {
			b.Fatal(err)
		}
		s.end("dropped")
		<-s.Context().Done()
	}
}
