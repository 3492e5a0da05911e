package indexbench

import (
	"math/rand/v2"
	"time"
)

// calibration is memory in which each line of 64 B says which is read next, in
// one circle through all of it in no order that a processor could guess.
type calibration struct {
	lines []line
	at    uint64
}

type line [8]uint64

// calibrationBytes is more than a core's own caches by far.
const calibrationBytes = 128 << 20

// newCalibration links the lines of n bytes by Sattolo's algorithm.
func newCalibration(n int) *calibration {
	c := &calibration{lines: make([]line, n/64)}
	for i := range c.lines {
		c.lines[i][0] = uint64(i)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := len(c.lines) - 1; i > 0; i-- {
		j := rng.IntN(i)
		c.lines[i][0], c.lines[j][0] = c.lines[j][0], c.lines[i][0]
	}
	return c
}

// readNanos measures one read, as CPU time of this thread where that is told.
func (c *calibration) readNanos(reads int) float64 {
	cpu, from := threadCPU(), time.Now()
	at := c.at
	for range reads {
		at = c.lines[at][0]
	}
	c.at = at
	took := time.Since(from)
	if used := threadCPU() - cpu; used > 0 {
		took = used
	}
	return float64(took.Nanoseconds()) / float64(reads)
}

// ReadNanos measures one read of 64 B at a place that the one before told, so
// that figures of other machines can be compared.
func ReadNanos() float64 {
	c := newCalibration(calibrationBytes)
	return c.readNanos(len(c.lines) / 2)
}
