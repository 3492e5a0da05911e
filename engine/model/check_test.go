package model

import (
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

// Books that have been tampered with don't agree any more.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	for name, tamper := range map[string]func(w *Worker){ // order-free: each case stands alone
		"a reference too many":    func(w *Worker) { w.pool.blocks[w.running[0].blocks[0]].ref++ },
		"a block made up":         func(w *Worker) { w.pool.cached++ },
		"a name lost":             func(w *Worker) { w.pool.names.Remove(keys(2, 1)[0]) },
		"a content lost":          func(w *Worker) { w.journal.numbers.next++ },
		"a lower name lost":       func(w *Worker) { w.tiers[0].names.Remove(w.tiers[0].nodes[1].hash) },
		"a tier too full":         func(w *Worker) { w.tiers[0].capacity = 1 },
		"a load forgotten":        func(w *Worker) { w.tiers[0].link.queue = nil },
		"a load of other blocks":  func(w *Worker) { w.tiers[0].link.queue[0].from++ },
		"a link that goes back":   func(w *Worker) { w.tiers[0].link.next = -1 },
		"a request lost":          func(w *Worker) { w.waiting = nil },
		"one waits with blocks":   func(w *Worker) { w.waiting[0].blocks = []int32{1} },
		"one runs that waits":     func(w *Worker) { w.running[0].state = waiting },
		"one runs without blocks": func(w *Worker) { w.running[0].kv += 1e6 },
		"a prompt forgotten":      func(w *Worker) { w.prefilling = nil },
		"a context miscounted":    func(w *Worker) { w.decodingKV++ },
		"an end missed":           func(w *Worker) { w.nextFinish++ },
	} {
		w := loaded(t, func(c *Config) { c.MaxSeqs = 2 })
		submit(t, w, 2e6, Request{ID: 10, PromptTokens: 100, OutputTokens: 50, Keys: keys(2, 9)})
		w.Advance(2e6+50000, func(Event) {})
		submit(t, w, 2e6+50000, Request{ID: 11, PromptTokens: 641, OutputTokens: 1, Keys: keys(0, 40)})
		submit(t, w, 2e6+50000, Request{ID: 12, PromptTokens: 100, OutputTokens: 1})
		if err := w.SetLink(kv.CPU, 1e6); err != nil {
			t.Fatal(err)
		}
		w.Advance(2e6+80000, func(Event) {})
		if st := w.Stats(); st.Loading != 1 || st.Running != 2 || st.Waiting != 1 {
			t.Fatalf("%+v, want one that decodes, one that loads and one that waits", st)
		}
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		tamper(w)
		if w.Check() == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}
