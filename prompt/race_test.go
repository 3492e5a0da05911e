//go:build race

package prompt

// raceSlowdown divides the number of steps of the heaviest law: under the race
// detector it costs several times as much, and more steps find no more races.
// What the law shows is shown in full without it.
const raceSlowdown = 4
