// Package lease is what the replicas of one data centre agree on: which worker
// holds a workflow, which incarnations of replicas are dead, and up to where
// promises are settled. It is agreed by Raft, and never on a request's path: a
// decision reads a local table, stale or not.
//
// The central types are [State], the state machine that every voter runs on the
// same log, which reads no clock and does no I/O, and [Group], this replica's part
// in the agreement: Raft where it votes, and the log as the leader passes it on
// where it doesn't. Who votes, and when a cluster begins anew, is decided by plan,
// a function of what a replica sees. Start reading at [State.Apply], then plan,
// then [Group.Run].
package lease
