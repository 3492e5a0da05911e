package fleet

import (
	"sort"

	"github.com/rhizome-router/rhizome/kv"
)

// occupiedStride is how many keys one entry of an occupied stands for.
const occupiedStride = 8

// occupied is what the prompts in flight on a target hold of its KV pool
// together, a prefix that several share counted once. It remembers every
// occupiedStride-th key, so it is right to within that many blocks a request.
type occupied struct {
	entries map[kv.Key]occupiedEntry
	tokens  float64 // of all entries
}

// occupiedEntry is a run of occupiedStride blocks that end with a key.
type occupiedEntry struct {
	users  int32
	tokens float64
}

// add counts a prompt in whose keys stand for so many tokens each.
func (o *occupied) add(keys []kv.Key, keyTokens float64) {
	if o.entries == nil {
		o.entries = make(map[kv.Key]occupiedEntry)
	}
	for i := occupiedStride - 1; i < len(keys); i += occupiedStride {
		e := o.entries[keys[i]]
		if e.users == 0 {
			e.tokens = occupiedStride * keyTokens
			o.tokens += e.tokens
		}
		e.users++
		o.entries[keys[i]] = e
	}
}

// remove counts a prompt out that was counted in.
func (o *occupied) remove(keys []kv.Key) {
	for i := occupiedStride - 1; i < len(keys); i += occupiedStride {
		e := o.entries[keys[i]]
		if e.users--; e.users > 0 {
			o.entries[keys[i]] = e
			continue
		}
		o.tokens -= e.tokens
		delete(o.entries, keys[i])
	}
}

// leading returns how many leading keys of a prompt are in use already.
func (o *occupied) leading(keys []kv.Key) int {
	return occupiedStride * sort.Search(len(keys)/occupiedStride, func(i int) bool {
		return o.entries[keys[(i+1)*occupiedStride-1]].users == 0
	})
}

// covered returns how many of n keys the entries of a prompt stand for.
func covered(n int) int { return n / occupiedStride * occupiedStride }
