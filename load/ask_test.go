package load

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/workload"
)

// A conversation grows by what was answered, and by nothing of a turn that
// failed; its requests name their workflow.
func TestAskedConversationGrowsByAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newMemoryNet()
		defer net.close()
		front := &fakeWorker{ttft: 50 * time.Millisecond, tpot: time.Millisecond, cached: 7, headers: map[string]string{"x-rhizome-worker": "http://w0", "x-rhizome-replica": "r0"}}
		net.serve("router", front)
		chat := workload.DefaultChat()
		chat.TokenShare = 0
		asker, err := NewAsker("fake-7b", chat, net.transport(), clock.Real(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer asker.Close()
		c := asker.Open(3, "flow")
		first := c.Ask(t.Context(), "http://router")
		if first.Kind != "" || first.Worker != "http://w0" || first.Replica != "r0" || first.CachedTokens != 7 || first.First <= first.Sent || first.End < first.First {
			t.Fatalf("%+v", first)
		}
		grown := len(c.talk.messages)
		if gone := c.Ask(t.Context(), "http://nobody"); gone.Kind != KindConnect || len(c.talk.messages) != grown {
			t.Errorf("%+v, and %d bytes of messages, want %d", gone, len(c.talk.messages), grown)
		}
		if again := c.Ask(t.Context(), "http://router"); again.Kind != "" || again.PromptTokens <= first.PromptTokens {
			t.Errorf("first %+v, then %+v", first, again)
		}
		turns := 2
		for _, more := c.Think(); more; _, more = c.Think() {
			if a := c.Ask(t.Context(), "http://router"); a.Kind != "" {
				t.Fatal(a.Err)
			}
			turns++
		}
		if turns != len(c.session.Turns) || turns != len(front.requests()) {
			t.Errorf("%d turns were asked and %d answered, the session has %d", turns, len(front.requests()), len(c.session.Turns))
		}
		if got := front.requests()[0].workflow; got != "flow" {
			t.Errorf("the workflow was named %q", got)
		}
	})
}
