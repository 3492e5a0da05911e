package real

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestWeather(t *testing.T) {
	const packets = 20_000
	w := weather{loss: 0.05, delay: 20 * time.Millisecond, duplicate: 0.02, reorder: 0.1, lateness: 50 * time.Millisecond, mtu: 1300}
	rng := rand.New(rand.NewPCG(1, 2))
	lost, doubled, late := 0, 0, 0
	for range packets {
		fates := w.fates(1200, rng)
		switch len(fates) {
		case 0:
			lost++
		case 2:
			doubled++
		}
		for _, d := range fates {
			switch {
			case d >= 60*time.Millisecond && d < 80*time.Millisecond:
				late++
			case d < 10*time.Millisecond || d >= 30*time.Millisecond:
				t.Fatalf("a packet takes %v", d)
			}
		}
	}
	for _, c := range []struct {
		name  string
		share float64
		n     int
	}{{"lost", 0.05, lost}, {"doubled", 0.02 * 0.95, doubled}, {"late", 0.1 * 0.95 * 1.02, late}} {
		if got := float64(c.n) / packets; got < 0.8*c.share || got > 1.2*c.share {
			t.Errorf("%v of packets are %s, want %v", got, c.name, c.share)
		}
	}
	if w.fates(1301, rng) != nil && w.loss < 1 {
		t.Error("a packet over the MTU came through")
	}
	if f := new(weather).fates(9000, rng); len(f) != 1 || f[0] != 0 {
		t.Errorf("in fair weather a packet has fates %v", f)
	}
}
