// Package bubble is the chaos ground of the whole mesh in virtual time:
// membership by memberlist, Raft, anti-entropy and the search for lost replicas
// as they ship, inside a testing/synctest bubble, on transport's network in
// memory. A minute takes about a second.
//
// Goroutines take turns as the machine has it, so runs of a seed differ: each
// scenario is played several times, and only what must always hold is judged.
// There are no requests here, and no TLS; engines are logs of batches that the
// replica whose turn it is reads.
//
// synctest needs a *testing.T, so [Play] is called by a test. [Ground] runs that
// test, built as a program (`make chaos-build`), for the laboratory's command
// line.
package bubble
