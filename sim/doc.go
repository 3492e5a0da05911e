// Package sim is the laboratory: it plays routers against modelled fleets in
// virtual time, so that a change of the decision can be judged in seconds and
// compared with what others ship. The product's own router runs in it as it
// ships; peers' rules are in package policy; the engines are those of
// engine/model.
//
// A [Scenario] says what work meets what fleet; [Play] plays it by several
// [Policy] values over several seeds and returns a [Table]. Inside, a world
// (world.go) runs one plan by one policy on one seed: an agenda of events, the
// engines, and between them and the routers an observation layer (observe.go,
// build.go) that lets through what a real router would see. What a seed's
// workers are like (nature.go) no router is told. Start reading at world.go;
// DESIGN.md says what is modelled, what is real code, and what is left out.
//
// Everything follows from seeds: equal arguments give equal tables, but for the
// time that decisions took on this machine.
package sim
