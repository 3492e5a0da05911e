package workload

import "time"

// Plan is work for a fleet as a simulator plays it: every prompt and answer is
// known beforehand, only the times at which later turns are sent follow from
// the answers. So whoever routes it gets the same work.
type Plan struct {
	Name string
	// Jobs are ordered so that each one's Waits stand before it.
	Jobs []Job
}

// Job is one request of a plan.
type Job struct {
	// Session numbers the conversation, Turn the request in it, from 0.
	Session, Turn int
	// At is when the request is sent, counted from the plan's zero, if it waits
	// for nothing. If it waits, it is sent After the last of Waits ended, and
	// not before At.
	At    time.Duration
	Waits []int // indices of earlier jobs
	After time.Duration
	// Prompt is the whole prompt. Turns of one session share memory.
	Prompt []Span
	// Answer is the content of the answer, which a later prompt may contain.
	Answer Span
	// MaxTokens is the limit that the client sets; 0: none.
	MaxTokens int
	// Hidden says that the client names no session: a router can tell it only
	// by the prompt.
	Hidden       bool
	Tenant, Tool string
}

// Span is a run of tokens of one content: spans of equal ID hold equal tokens,
// from the first one on, so a shorter one leads a longer.
type Span struct {
	ID     uint64
	Tokens int
}

// PromptTokens returns the length of the prompt.
func (j *Job) PromptTokens() int {
	n := 0
	for _, s := range j.Prompt {
		n += s.Tokens
	}
	return n
}
