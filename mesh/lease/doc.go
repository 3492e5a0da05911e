// Package lease is what the replicas of one data centre agree on: which worker
// holds a workflow, which incarnations of replicas are dead, and up to where
// promises are settled. It is agreed by Raft, and never on a request's path: a
// decision reads a local table, stale or not.
//
// The central type is [State], the state machine that every voter runs on the
// same log; it reads no clock and does no I/O. Start reading at [State.Apply].
package lease
