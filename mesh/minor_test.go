package mesh

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/mesh/core"
)

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count returns how many lines have all parts.
func (l *logged) count(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// Replicas of two minor versions share what both know, and each says in its log,
// once, that the other speaks another; what only the later one has is used once
// the last of the earlier one is gone. One that sends what an earlier one does not
// know has its stream closed there, with a line that names both versions; nothing
// else ends.
func TestMixedMinors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logged{}
		p := newPond(t, 2)
		defer p.stopAll()
		p.nodes[1].stop()
		<-p.nodes[1].done
		p.minor, p.log = Minor+1, slog.NewTextHandler(log, nil)
		p.nodes[1] = p.start(1)
		earlier, later := p.nodes[0], p.nodes[1]
		p.within(5*time.Second, "both are connected", func() bool { return up(p.nodes...) })
		earlier.publish(t, 0, 10)
		p.within(time.Second, "both have the stream", func() bool { return later.at() == 10 })
		if n := log.count("level=WARN", "different minor versions", "its=1", "ours=2", "used=1"); n != 1 {
			t.Errorf("%d lines on the other's version:\n%s", n, log.text.String())
		}
		for i, s := range p.nodes {
			st := s.State()
			if st.LeastMinor != Minor || s.LeastMinor() != Minor || int(st.Minor) != Minor+i || int(st.Members[0].Minor) != Minor+1-i && len(st.Members) == 1 {
				t.Errorf("replica %d speaks %d and uses %d: %+v", i, st.Minor, st.LeastMinor, st.Members)
			}
		}

		// A frame of a type that only a still later version has.
		unknown := func(s *swimmer) {
			s.Node.mu.Lock()
			defer s.Node.mu.Unlock()
			for _, l := range s.lanes {
				s.enqueue(s.deps.Clock.Now(), l, core.Message{Class: core.Live, Frame: []byte("\x91\x63")})
			}
		}
		unknown(earlier)
		p.within(5*time.Second, "the stream is closed and another opened", func() bool {
			return log.count("level=WARN", "its stream is closed", "its_minor=1", "our_minor=2", "type 99") == 1 && up(p.nodes...)
		})
		earlier.publish(t, 10, 20)
		p.within(15*time.Second, "both have the rest of the stream", func() bool { return later.at() == 20 })

		earlier.stop()
		<-earlier.done
		p.within(2*time.Second, "the later version alone counts", func() bool { return later.LeastMinor() == Minor+1 })
		p.nodes[0] = p.start(0)
		p.within(5*time.Second, "both are connected again", func() bool { return up(p.nodes...) })
		if got := p.nodes[0].LeastMinor(); got != Minor+1 {
			t.Errorf("two of the later version use %d", got)
		}
	})
}
