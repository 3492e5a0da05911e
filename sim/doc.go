// Package sim is the laboratory: a discrete-event simulator that runs the real
// router, and the rules of its peers, in virtual time against modelled engines.
package sim
