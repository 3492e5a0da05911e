package emulator

import "sync"

// call is one HTTP request in the engine: one job for each prompt and choice.
// The owner goroutine writes what mu guards, the handler reads it.
type call struct {
	jobs    []*job
	choices int // jobs of one prompt, next to each other
	stream  bool
	arrived float64       // modelled micros
	wake    chan struct{} // there is something new: tokens of a stream, or the end

	mu      sync.Mutex
	pending int // jobs not ended
	err     error
}

// job is one sequence of a call.
type job struct {
	*sequence
	id   uint64
	call *call

	// Of the owner alone:
	admitted float64 // modelled micros; negative before
	firstAt  float64 // of its first token
	lastAt   float64 // of its last one so far

	// Guarded by call.mu:
	out                   int // tokens
	hbmTokens, tierTokens int
	clock, busy           float64 // modelled micros at the first token, and at the end
}

// newCall makes the call of seqs, which hold n choices for each prompt.
func newCall(seqs []*sequence, n int, stream bool, arrived float64) *call {
	c := &call{choices: n, stream: stream, arrived: arrived, wake: make(chan struct{}, 1), pending: len(seqs)}
	for _, s := range seqs {
		c.jobs = append(c.jobs, &job{sequence: s, call: c, admitted: -1})
	}
	return c
}

// signal wakes the handler, which looks for itself what is new.
func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// snapshot is what a handler sees of a call at one instant.
type snapshot struct {
	out                   []int // tokens of each job
	done                  bool
	err                   error
	hbmTokens, tierTokens int
	clock, busy           float64
}

// read fills s, which may be reused.
func (c *call) read(s *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*s = snapshot{out: s.out[:0], done: c.pending == 0, err: c.err}
	for i, j := range c.jobs {
		s.out = append(s.out, j.out)
		if i%c.choices == 0 { // a prompt's other choices find what it computed
			s.hbmTokens += j.hbmTokens
			s.tierTokens += j.tierTokens
		}
		s.clock = max(s.clock, j.clock)
		s.busy = max(s.busy, j.busy)
	}
}
