//go:build !race

package route

const raceSlowdown = 1
