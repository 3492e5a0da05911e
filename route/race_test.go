//go:build race

package route

// raceSlowdown divides the number of seeds of the heaviest tests: under the race
// detector they cost several times as much, and more seeds find no more races.
// What the seeds show is shown in full without it.
const raceSlowdown = 4
