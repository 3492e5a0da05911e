package policy

import (
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// tree remembers which prompts went to which worker, for rules that guess the
// workers' caches from their own routing. Each worker has a list of blocks in
// the order of their last use, and loses those used longest ago when it has
// too many. A prompt's blocks count as used from the last one to the first, so
// that a block never leaves before one that follows it.
type tree struct {
	workers []lru
	// lifetime is how long an unused block stays; 0: for ever.
	lifetime time.Duration
}

// lru is one worker's blocks. Nodes are linked by their numbers; 0 is the head
// of the ring, whose next is the block used last.
type lru struct {
	at    map[kv.Key]int32
	nodes []lruNode
	free  []int32
	cap   int // blocks
}

type lruNode struct {
	key        kv.Key
	prev, next int32
	uses       int32
	used       clock.Instant
}

func newTree(workers, capBlocks int) *tree {
	t := &tree{workers: make([]lru, workers)}
	for w := range t.workers {
		t.workers[w].cap = capBlocks
	}
	return t
}

// run returns how many of a prompt's leading blocks went to a worker and are
// remembered.
func (t *tree) run(worker int, keys []kv.Key) int {
	l := &t.workers[worker]
	return leadingRun(len(keys), func(i int) bool {
		_, ok := l.at[keys[i]]
		return ok
	})
}

// touch records that a prompt went to a worker.
func (t *tree) touch(now clock.Instant, worker int, keys []kv.Key) {
	l := &t.workers[worker]
	if l.at == nil {
		l.at, l.nodes = map[kv.Key]int32{}, make([]lruNode, 1)
	}
	for i := len(keys) - 1; i >= 0; i-- {
		l.use(now, keys[i])
	}
	for len(l.at) > l.cap {
		l.evict()
	}
	for t.lifetime > 0 && len(l.at) > 0 && now.Sub(l.nodes[l.oldest()].used) > t.lifetime {
		l.evict()
	}
}

// forget empties a worker's list.
func (t *tree) forget(worker int) {
	t.workers[worker] = lru{cap: t.workers[worker].cap}
}

// size returns how many blocks of a worker are remembered.
func (t *tree) size(worker int) int { return len(t.workers[worker].at) }

func (l *lru) oldest() int32 { return l.nodes[0].prev }

func (l *lru) use(now clock.Instant, k kv.Key) {
	i, ok := l.at[k]
	switch {
	case ok:
		l.unlink(i)
	case len(l.free) > 0:
		i = l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		l.nodes[i] = lruNode{key: k}
		l.at[k] = i
	default:
		i = int32(len(l.nodes))
		l.nodes = append(l.nodes, lruNode{key: k})
		l.at[k] = i
	}
	n := &l.nodes[i]
	n.uses++
	n.used = now
	n.prev, n.next = 0, l.nodes[0].next
	l.nodes[n.next].prev = i
	l.nodes[0].next = i
}

func (l *lru) evict() {
	i := l.oldest()
	l.unlink(i)
	delete(l.at, l.nodes[i].key)
	l.free = append(l.free, i)
}

func (l *lru) unlink(i int32) {
	n := &l.nodes[i]
	l.nodes[n.prev].next = n.next
	l.nodes[n.next].prev = n.prev
}
