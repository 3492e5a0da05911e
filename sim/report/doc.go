// Package report shows what a run of the laboratory found: a table for the
// terminal, JSON and CSV for machines, and one self-contained page with plots.
//
// Everything is drawn from [sim.Table], one for each scenario. The list of
// figures in figures.go says once how each of them is named, in which unit and
// which way it is better; start reading there, then at [WriteTable].
package report
