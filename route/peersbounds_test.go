package route

import (
	"log/slog"
	"testing"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// What peers say and are to be told, and nobody has taken yet, is bounded; the
// rest is counted.
func TestPeersNewsAreBounded(t *testing.T) {
	node, err := mesh.New(mesh.Config{}, mesh.Deps{Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := &Router{peering: newPeering(node), deps: Deps{Clock: clock.Real(), Mesh: node}}
	r.listen()
	p := r.peering
	p.sentNews, p.heard = make([]sentNews, maxNews), make([]heardValue, maxHeard-1)
	p.sent(nil, []kv.Key{1}, 0)
	if len(p.sentNews) != maxNews || p.refused.Load() != 1 {
		t.Errorf("%d news for peers, %d refused", len(p.sentNews), p.refused.Load())
	}
	peer := core.New(core.Config{Self: core.Replica{Name: "peer"}}, new(core.Shown))
	peer.Up(1, "alone")
	for _, key := range []string{"a", "b", "c"} {
		peer.Put(1, core.Fits, key, []byte("x"), 0)
	}
	peer.Tick(2)
	node.Do(func(now clock.Instant, c *core.Core) {
		c.Alive(now, "peer")
		for _, m := range peer.Out() {
			if err := c.Receive(now, "peer", m.Frame); err != nil {
				t.Error(err)
			}
		}
	})
	if len(p.heard) != maxHeard || p.refused.Load() != 3 {
		t.Errorf("%d values of peers, %d refused", len(p.heard), p.refused.Load())
	}
}
