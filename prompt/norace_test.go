//go:build !race

package prompt

const raceSlowdown = 1
