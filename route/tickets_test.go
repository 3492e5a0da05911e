package route

import (
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
	"pgregory.net/rapid"
)

// plainTicket is what a dispatch should promise, by plain definitions.
type plainTicket struct {
	slot     index.Slot
	open     map[kv.Key]bool
	deadline clock.Instant
}

// TestTicketsAgainstPlainOnes: whatever becomes of requests, in whatever order,
// a block counts as on its way to a worker exactly as long as a request that
// was sent there may still bring it.
func TestTicketsAgainstPlainOnes(t *testing.T) {
	prompts := make([]*prompt.Request, 6)
	for i := range prompts {
		prompts[i] = tokens(t, 16*10*(1+i%2), 16*5, i) // two families that share a prefix
	}
	form := prompt.Form{BlockTokens: blockTokens}
	rapid.Check(t, func(rt *rapid.T) {
		h := newHouse(t, Rhizome, 2)
		type live struct {
			d      *Decision
			ticket *plainTicket
			first  bool
		}
		var running []live
		var tickets []*plainTicket
		held := map[index.Slot]map[kv.Key]bool{}
		for _, m := range h.members {
			held[m.Cache().Slot] = map[kv.Key]bool{}
		}
		void := func(k *plainTicket) { k.open = nil }
		rt.Repeat(map[string]func(*rapid.T){
			"decide": func(rt *rapid.T) {
				d := h.decide(t, rapid.SampledFrom(prompts).Draw(rt, "prompt"))
				slot := d.member.Cache().Slot
				k := &plainTicket{slot: slot, open: map[kv.Key]bool{}}
				late := 4.0
				if c := &d.seen.class.late; c.firsts >= leastFirsts {
					late = math.Exp(c.ratios.Quantile(0.99))
				}
				wait := min(30, max(0.5, 1.5*late*d.PredictedTTFT.Seconds()))
				k.deadline = h.clock.Now().Add(time.Duration(wait * float64(time.Second)))
				for _, b := range d.query.TokenKeys(form) {
					if !held[slot][b] {
						k.open[b] = true
					}
				}
				running, tickets = append(running, live{d: d, ticket: k}), append(tickets, k)
			},
			"first byte": func(rt *rapid.T) {
				if len(running) == 0 {
					return
				}
				l := &running[rapid.IntRange(0, len(running)-1).Draw(rt, "which")]
				h.FirstByte(l.d)
				if !l.first {
					l.first, l.ticket.deadline = true, h.clock.Now().Add(2*time.Second)
				}
			},
			"end": func(rt *rapid.T) {
				if len(running) == 0 {
					return
				}
				i := rapid.IntRange(0, len(running)-1).Draw(rt, "which")
				l := running[i]
				running = append(running[:i:i], running[i+1:]...)
				result := rapid.SampledFrom([]Result{Completed, Busy, Rejected, Failed, Cancelled}).Draw(rt, "result")
				h.Done(l.d, Outcome{Result: result, Cause: 1})
				switch {
				case result == Failed || !l.first && result != Completed:
					void(l.ticket)
				case !l.first:
					l.ticket.deadline = h.clock.Now().Add(2 * time.Second)
				}
			},
			"confirm": func(rt *rapid.T) {
				m := rapid.SampledFrom(h.members).Draw(rt, "member")
				keys := rapid.SampledFrom(prompts).Draw(rt, "prompt").TokenKeys(form)
				n := rapid.IntRange(1, len(keys)).Draw(rt, "blocks")
				present := rapid.Bool().Draw(rt, "present")
				var changes []index.Change
				slot := m.Cache().Slot
				for _, k := range keys[:n] {
					changes = append(changes, index.Change{Key: k, Present: present})
					held[slot][k] = present
					for _, other := range tickets {
						if other.slot == slot && present {
							delete(other.open, k)
						}
					}
				}
				h.index.Apply(slot, changes)
			},
			"time": func(rt *rapid.T) {
				h.clock.Advance(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond)
				for _, k := range tickets {
					if k.deadline <= h.clock.Now() {
						void(k)
					}
				}
			},
			"": func(rt *rapid.T) {
				h.index.Expire(h.clock.Now())
				keys := rapid.SampledFrom(prompts).Draw(rt, "prompt").TokenKeys(form)
				want := map[index.Slot]int{}
				// order-free: slots are counted apart
				for slot := range held {
					for _, b := range keys {
						on := held[slot][b]
						for _, k := range tickets {
							on = on || k.slot == slot && k.open[b]
						}
						if !on {
							break
						}
						want[slot]++
					}
				}
				got := map[index.Slot]int{}
				for _, hit := range h.index.Match(keys, nil) {
					got[hit.Slot] = hit.Promised.HBM
				}
				for slot := range held {
					if got[slot] != want[slot] {
						rt.Fatalf("%d blocks count as there or on their way to slot %d, want %d", got[slot], slot, want[slot])
					}
				}
			},
		})
	})
}

// TestPromiseLife: promises wait as long as first tokens of the class were seen
// to take, within bounds.
func TestPromiseLife(t *testing.T) {
	var c class
	if got := c.promiseLife(time.Second); got != 6*time.Second {
		t.Errorf("unmeasured: %v", got)
	}
	for i := range 1000 {
		actual := 500 * time.Millisecond // early is in time
		if i%20 == 0 {
			actual = 3 * time.Second
		}
		c.late.observe(time.Second, actual)
	}
	if got := c.promiseLife(time.Second); got < 4*time.Second || got > 5*time.Second {
		t.Errorf("with 1 of 20 late by 3: %v, want about 1.5 times 3 s", got)
	}
	if got := c.promiseLife(time.Millisecond); got != 500*time.Millisecond {
		t.Errorf("the least: %v", got)
	}
	if got := c.promiseLife(time.Hour); got != 30*time.Second {
		t.Errorf("the most: %v", got)
	}
}
