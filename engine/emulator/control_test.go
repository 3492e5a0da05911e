package emulator

import (
	"net/http"
	"testing"
)

// What a mute engine does is lost for good: a feed starts over when it hears the
// next batch.
func TestMute(t *testing.T) {
	w := start(t, func(c *Config) { c.Speedup = 2000 })
	f := follow(t, w)
	ask := func(n int) {
		complete(t, w.URL()+"/v1/completions", obj{"prompt": words(n, 2000), "max_tokens": 40})
	}
	ask(1)
	f.untilSame(t, w)
	mute := func(on string) {
		t.Helper()
		if res, raw := post(t, w.URL()+"/emulator/mute?on="+on, ""); res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", res.Status, raw)
		}
	}
	mute("true")
	ask(2)
	mute("false")
	lost := batches(w)
	ask(3)
	for f.resets == 0 {
		f.next(t)
	}
	heard := replayFrom(t, w, 0)
	if made := batches(w); len(heard) == 0 || lost == 0 || len(heard) >= made || len(cacheOf(w).copies) == 0 {
		t.Errorf("%d batches of %d can be replayed", len(heard), made)
	}
	if res, _ := post(t, w.URL()+"/emulator/mute?on=maybe", ""); res.StatusCode != http.StatusBadRequest {
		t.Errorf("mute, maybe: %s", res.Status)
	}
}

func TestSlow(t *testing.T) {
	w := start(t, func(c *Config) { c.Speedup = 200 })
	tokens := func() float64 { // modelled micros of an answer
		before := w.Stats().BusyMicros
		complete(t, w.URL()+"/v1/completions", obj{"prompt": words(1, 200), "max_tokens": 200})
		return w.Stats().BusyMicros - before
	}
	tokens() // fills the cache
	own := tokens()
	if res, raw := post(t, w.URL()+"/emulator/slow?factor=4", ""); res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, raw)
	}
	if slow := tokens(); slow < 3.5*own || slow > 4.5*own {
		t.Errorf("an answer of %v µs takes %v at a quarter of the speed", own, slow)
	}
	for _, bad := range []string{"0", "-1", "x", ""} {
		if res, _ := post(t, w.URL()+"/emulator/slow?factor="+bad, ""); res.StatusCode != http.StatusBadRequest {
			t.Errorf("factor %q: %s", bad, res.Status)
		}
	}
}
