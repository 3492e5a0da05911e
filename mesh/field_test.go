package mesh

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/transport"
)

// Replicas find each other again however they were split: one alone, while they
// started, or all ended at once and started under the same addresses.
func TestBR25_HoweverTheyWereSplit(t *testing.T) {
	for name, split := range map[string]func(p *pond){
		"one alone": func(p *pond) {
			p.within(5*time.Second, "all are connected", func() bool { return up(p.nodes...) })
			p.net.Partition(p.addrs[:1], p.addrs[1:])
			time.Sleep(30 * time.Second)
			p.net.Heal()
		},
		"at the start": func(p *pond) { // at once, before they found each other
			p.net.Partition(p.addrs[:2], p.addrs[2:])
			time.Sleep(30 * time.Second)
			if !up(p.nodes[:2]...) {
				t.Error("a side with a seed is not whole")
			}
			p.net.Heal()
		},
		"all crash": func(p *pond) {
			p.within(5*time.Second, "all are connected", func() bool { return up(p.nodes...) })
			for _, s := range p.nodes {
				s.endpoint.Crash()
			}
			for i, s := range p.nodes {
				s.stop()
				<-s.done
				p.nodes[i] = p.start(i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPond(t, 4)
				defer p.stopAll()
				split(p)
				p.within(5*time.Second, "membership is whole", func() bool { return up(p.nodes...) })
			})
		})
	}
}

// A replica at an address that was another cluster's joins nothing, be it that a
// seed leads there or that others still look for who was there before; the same
// secret makes no difference.
func TestBR34_ARecycledAddressJoinsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 3)
		defer p.stopAll()
		p.within(5*time.Second, "all are connected", func() bool { return up(p.nodes...) })
		p.nodes[0].publish(t, 0, 10)
		p.nodes[2].endpoint.Crash()
		p.nodes[2].stop()
		<-p.nodes[2].done
		other := Config{
			Peers:     []string{p.addrs[0].String()},
			Transport: transport.Config{Cluster: "other", Secrets: []string{strings.Repeat("0123456789abcdef", 3)}},
		}
		p.nodes[2] = p.startAs(2, other)
		p.within(8*time.Second, "the crash is noticed", func() bool { return up(p.nodes[:2]...) })
		time.Sleep(30 * time.Second)
		if got := p.nodes[2].State(); len(got.Members) != 0 || got.Streams.Held != 0 {
			t.Errorf("the other cluster's replica knows %+v", got)
		}
		for i, s := range p.nodes[:2] {
			for _, m := range s.State().Members {
				if m.Name == p.nodes[2].State().Replica {
					t.Errorf("replica %d knows %+v", i, m)
				}
			}
		}
	})
}

// A replica is ready once it has caught up with a peer; once it has looked for
// one everywhere and found none; and if neither comes, once the time to warm up
// is over. Losing all peers later does not make it unready.
func TestBR44_ReadyOnceCaughtUpOrAloneOrLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t, 2)
		defer p.stopAll()
		began := time.Now()
		p.within(5*time.Second, "the first are ready", func() bool { return p.nodes[0].Ready() == nil && p.nodes[1].Ready() == nil })
		p.within(5*time.Second, "the first are connected", func() bool { return up(p.nodes...) })
		p.nodes[0].publish(t, 0, 2000)
		time.Sleep(time.Second)

		// It has no stream before it is ready, and all of it when it is.
		p.nodes[1].stop()
		<-p.nodes[1].done
		p.nodes[1] = p.start(1)
		if p.nodes[1].Ready() == nil {
			t.Error("ready before it looked for anybody")
		}
		p.within(5*time.Second, "the second is ready again", func() bool { return p.nodes[1].Ready() == nil })
		if at := p.nodes[1].at(); at != 2000 {
			t.Errorf("ready with %d of 2000 batches", at)
		}
		if !p.nodes[1].State().Warm {
			t.Error("ready, but not warm")
		}
		p.nodes[0].endpoint.Crash()
		p.nodes[0].stop()
		<-p.nodes[0].done
		time.Sleep(20 * time.Second)
		if err := p.nodes[1].Ready(); err != nil {
			t.Errorf("the loss of its peers: %v", err)
		}

		// Nobody answers anywhere: it is alone, after one look.
		p.nodes[1].stop()
		<-p.nodes[1].done
		p.nodes[0] = p.start(0)
		p.within(8*time.Second, "one alone is ready", func() bool { return p.nodes[0].Ready() == nil })

		// A member that can't be connected to: it waits no longer than it is told.
		p.nodes[1] = p.start(1)
		ghost := fmt.Sprint("ghost of ", began)
		p.nodes[1].Do(func(now clock.Instant, c *core.Core) { c.Alive(now, ghost) })
		p.nodes[0].stop()
		<-p.nodes[0].done
		started := time.Now()
		p.within(11*time.Second, "one that waits in vain is ready", func() bool { return p.nodes[1].Ready() == nil })
		if waited := time.Since(started); waited < 9*time.Second {
			t.Errorf("ready after %v", waited)
		}
	})
}
