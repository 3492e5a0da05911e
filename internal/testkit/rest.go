package testkit

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Rest is what must be as it was when a test ends: the idle invariant.
type Rest struct {
	// Metrics gives a text exposition, to be checked by [Idle] with the gauges
	// of Zero. Nil: not checked.
	Metrics func() string
	Zero    []string
	// Sizes are maps, queues and counters by name; each must have the size
	// that it had at the start.
	Sizes map[string]func() int
	// HeapBytes is how much more live heap may be left than there was; 0: not
	// checked.
	HeapBytes int64
}

// AtRest takes the state now as the baseline and checks at the end of the
// test, after the clean-ups that are registered later, that all is back: sizes,
// gauges, goroutines, heap. Call it before anything is started.
func AtRest(t testing.TB, r Rest) {
	t.Helper()
	goroutines := goleak.IgnoreCurrent()
	sizes := make(map[string]int)
	for name, size := range r.Sizes {
		sizes[name] = size()
	}
	var heap int64
	if r.HeapBytes > 0 {
		heap = LiveHeap()
	}
	t.Cleanup(func() {
		if r.Metrics != nil {
			Idle(t, r.Metrics(), r.Zero...)
		}
		for name, size := range r.Sizes {
			if n := size(); n != sizes[name] {
				t.Errorf("at rest %s is %d, it was %d", name, n, sizes[name])
			}
		}
		if err := goleak.Find(goroutines); err != nil {
			t.Errorf("at rest: %v", err)
		}
		if r.HeapBytes > 0 {
			// What connections held is let go when their goroutines get to it.
			more := LiveHeap() - heap
			for deadline := time.Now().Add(10 * time.Second); more > r.HeapBytes && time.Now().Before(deadline); more = LiveHeap() - heap {
				time.Sleep(50 * time.Millisecond)
			}
			if more > r.HeapBytes {
				t.Errorf("at rest %d more bytes are live, %d are allowed", more, r.HeapBytes)
			}
		}
	})
}

// LiveHeap returns the bytes of objects that a collection leaves, pools
// emptied.
func LiveHeap() int64 {
	runtime.GC()
	runtime.GC() // the second one empties what sync.Pool kept from the first
	return heapBytes()
}

func heapBytes() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// HeapPeak watches the heap until the test ends. peak returns the most bytes
// of objects, dead ones not yet collected included, above what was live at the
// start.
func HeapPeak(t testing.TB) (peak func() int64) {
	base := LiveHeap()
	var most atomic.Int64
	look := func() {
		if n := heapBytes() - base; n > most.Load() {
			most.Store(n)
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				look()
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
	return func() int64 { look(); return most.Load() }
}

// Until waits for something that no event tells of, such as a gauge reaching a
// value, and fails the test when it does not come.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(rawPatience)
	for !is() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited %v in vain: %s", rawPatience, what)
		}
	}
}
