package fleet

import (
	"math"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"pgregory.net/rapid"
)

func worked(ms float64) *Booking {
	b := booking(1000, 0)
	b.WorkMicros, b.PredictedTTFT = ms*1e3, time.Hour
	return b
}

func at(ms int) clock.Instant { return clock.Instant(time.Duration(ms) * time.Millisecond) }

func TestVirtualClock(t *testing.T) {
	var l Ledger
	want := func(ms int, left float64) {
		t.Helper()
		if got := l.ClockMicros(at(ms)) / 1e3; math.Abs(got-left) > 1e-6 {
			t.Errorf("after %d ms %v ms are left, want %v", ms, got, left)
		}
	}
	a, b, c := worked(100), worked(200), worked(300)
	l.Book(at(0), a)
	l.Book(at(50), b)
	want(50, 250)
	l.Book(at(50), c)
	want(50, 550)
	l.FirstToken(at(80), a, time.Millisecond) // 20 ms early
	want(80, 500)
	l.FirstToken(at(400), b, time.Millisecond) // 120 ms late
	want(400, 300)
	want(690, 15)  // 10 ms, but nothing shows that the newest is done: 5 % of it
	want(1000, 15) // held
	want(1149, 15)
	want(1151, 0) // it should have been done by 600 ms, twice the time is over
	l.Release(at(1151), c)
	want(1151, 0)
	d := worked(100)
	l.Book(at(2000), d)
	l.Book(at(2000), worked(50))
	l.Release(at(2010), d) // cancelled
	want(2010, 40)
}

// A worker that says that nothing waits has begun all that reached it.
func TestNothingWaitsCorrectsTheClock(t *testing.T) {
	var l Ledger
	for _, ms := range []float64{1000, 1000, 300} {
		l.Book(at(0), worked(ms))
	}
	l.Book(at(950), worked(70)) // not there yet, or not for sure
	l.NothingWaits(at(1000))
	if got := l.ClockMicros(at(1000)); got != 370e3 {
		t.Errorf("%v µs are left, want the newest of those that were there, and what came later", got)
	}
	l.Book(at(1000), worked(5000))
	l.NothingWaits(at(1000)) // the same word again
	if got := l.ClockMicros(at(1000)); got != 5370e3 {
		t.Errorf("%v µs are left after a word was heard twice", got)
	}
}

// The clock never says less than nothing nor more than all work that is booked
// and not known or taken to be over, whatever the order in which the news comes,
// and where nothing is late or lost it is exact.
func TestClockStaysWithinTheWorkBooked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		now := clock.Instant(0)
		var all []*Booking
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond)
			switch action := rapid.IntRange(0, 4).Draw(t, "action"); {
			case action == 0 || len(all) == 0:
				b := worked(float64(rapid.IntRange(1, 1000).Draw(t, "work")))
				b.PredictedTTFT = time.Duration(rapid.IntRange(1, 1000).Draw(t, "predicted")) * time.Millisecond
				b.Silent = rapid.Bool().Draw(t, "silent")
				l.Book(now, b)
				all = append(all, b)
			case action == 1:
				l.FirstToken(now, all[rapid.IntRange(0, len(all)-1).Draw(t, "which")], time.Millisecond)
			case action == 2:
				l.Release(now, all[rapid.IntRange(0, len(all)-1).Draw(t, "which")])
			case action == 3:
				l.Settle(now, time.Millisecond)
			case action == 4:
				l.NothingWaits(now)
			}
			most := 0.0
			for _, b := range all {
				if b.stage == queued {
					most += b.WorkMicros
				}
			}
			// A decision may begin before the last news and be made after it.
			if got := l.ClockMicros(now - clock.Instant(rapid.IntRange(0, 1e8).Draw(t, "earlier"))); got < 0 || got > most+1 {
				t.Fatalf("%v µs are left of %v booked", got, most)
			}
		}
		// A worker that does one after the other, as predicted.
		for _, b := range all {
			l.Release(now, b)
		}
		now = now.Add(time.Hour)
		l.NothingWaits(now)
		work := rapid.SliceOfN(rapid.IntRange(1, 500), 1, 20).Draw(t, "in turn")
		end := now
		var queue []*Booking
		for _, ms := range work {
			b := worked(float64(ms))
			l.Book(now, b)
			queue = append(queue, b)
			end = end.Add(time.Duration(ms) * time.Millisecond)
			if got := l.ClockMicros(now); math.Abs(got-float64(end.Sub(now).Microseconds())) > 1 {
				t.Fatalf("%v µs are left, want %v", got, end.Sub(now))
			}
		}
		for i, b := range queue {
			now = now.Add(time.Duration(work[i]) * time.Millisecond)
			l.FirstToken(now, b, time.Millisecond)
			if got := l.ClockMicros(now); math.Abs(got-float64(end.Sub(now).Microseconds())) > 1 {
				t.Fatalf("after %d: %v µs are left, want %v", i+1, got, end.Sub(now))
			}
		}
	})
}

func TestSlowFactor(t *testing.T) {
	for _, c := range []struct {
		fit, ramp time.Duration
		want      float64
	}{
		{0, 0, 1}, {0, 30 * time.Second, 10}, {3 * time.Second, 30 * time.Second, 10}, {10 * time.Second, 30 * time.Second, 3},
		{29 * time.Second, 30 * time.Second, 30. / 29}, {30 * time.Second, 30 * time.Second, 1}, {time.Hour, 30 * time.Second, 1},
	} {
		if got := SlowFactor(c.fit, c.ramp); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("fit for %v of %v: %v, want %v", c.fit, c.ramp, got, c.want)
		}
	}
}

func TestFitForCountsFromTheLastReturn(t *testing.T) {
	var m Member
	for _, c := range []struct {
		ms    int
		grade Grade
		want  int
	}{
		{1000, Fit, 0}, {3000, Fit, 2000}, {4000, BusyNow, 3000}, {5000, Suspect, 0}, {6000, Suspect, 0}, {7000, Fit, 0}, {8000, Fit, 1000}, {9000, Draining, 0}, {9500, Fit, 0},
	} {
		m.Seen(at(c.ms), c.grade)
		if got := m.FitFor(at(c.ms)); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("at %d ms, %v: fit for %v", c.ms, c.grade, got)
		}
	}
}
