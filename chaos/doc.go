// Package chaos breaks a mesh of replicas on purpose and judges what comes of it.
//
// A [Scenario] is data: how many replicas and workers, what work, which faults
// when. A [Ground] plays it and writes down a [History]; a [Checker] reads the
// history and says what was wrong. Start reading at [Catalogue], the closed list
// of scenarios, then at [Checkers]. The grounds: chaos/pure (the product's own
// cores in virtual time, one seed one trace), chaos/bubble (the whole mesh under
// testing/synctest) and chaos/real (processes in network namespaces).
package chaos
