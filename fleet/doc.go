// Package fleet is the live view of all workers: which there are, whether they
// answer, what their caches hold, how loaded they are, and what this replica
// has in flight on each.
//
// The central type is [Fleet]; it publishes an immutable [View] of its
// [Member]s, which readers take without a lock. One goroutine a worker asks
// for its models and its metrics, one more a rank follows its KV events into
// the index. Start reading at [Fleet.Run].
package fleet
