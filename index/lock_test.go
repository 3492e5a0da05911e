package index

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestLockKeepsApart: what writers do under a lock is whole to readers and other
// writers. The locks share a bed, and the work under them is long enough that some
// sleep in it.
func TestLockKeepsApart(t *testing.T) {
	const locks, each, rounds, long = 2, 4, 200, 1000
	var b bed
	b.init()
	var ls [locks]lock
	var cells [locks][long]int
	var wg sync.WaitGroup
	for i := range locks {
		for w := range 2 * each {
			wg.Go(func() {
				for range rounds {
					if w%2 == 0 {
						ls[i].lock(&b)
						for j := range cells[i] {
							cells[i][j]++
						}
						ls[i].unlock(&b)
						continue
					}
					ls[i].rlock(&b)
					for j := range cells[i] {
						if cells[i][j] != cells[i][0] {
							t.Errorf("cell %d is %d, cell 0 %d", j, cells[i][j], cells[i][0])
							break
						}
					}
					ls[i].runlock(&b)
				}
			})
		}
	}
	wg.Wait()
	for i := range ls {
		if n := cells[i][0]; n != each*rounds {
			t.Errorf("%d writes are in the cells of lock %d, want %d", n, i, each*rounds)
		}
		if s := ls[i].state.Load(); s != 0 && s != sleepers {
			t.Errorf("lock %d is left as %#x", i, s)
		}
	}
}

// TestLockWaits: a writer waits for readers and keeps those off that come later;
// who sleeps is woken.
func TestLockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bed
		b.init()
		var l, other lock
		var order []string
		l.rlock(&b)
		l.rlock(&b)
		go func() {
			l.lock(&b)
			order = append(order, "writer")
			l.unlock(&b)
		}()
		synctest.Wait() // it sleeps
		go func() {
			l.rlock(&b)
			order = append(order, "reader")
			l.runlock(&b)
		}()
		go func() {
			other.lock(&b)
			other.unlock(&b)
		}()
		synctest.Wait()
		l.runlock(&b)
		synctest.Wait()
		if len(order) > 0 {
			t.Fatalf("%v went past a reader", order)
		}
		l.runlock(&b)
		synctest.Wait()
		if len(order) != 2 {
			t.Fatalf("only %v got in", order)
		}
		l.lock(&b)
		for range 2 {
			go func() {
				l.lock(&b)
				order = append(order, "writer")
				l.unlock(&b)
			}()
		}
		synctest.Wait()
		if len(order) != 2 {
			t.Fatalf("%v went past a writer", order)
		}
		l.unlock(&b)
		synctest.Wait()
		if len(order) != 4 {
			t.Errorf("only %v got in", order)
		}
	})
}
