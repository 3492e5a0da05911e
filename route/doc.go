// Package route is the decision: which worker gets a request.
//
// The central type is [Router]. [Router.Decide] matches the prompt against
// what the workers hold, prices every worker with package cost, chooses and
// books, in one step and in microseconds; [Router.FirstByte] and
// [Router.Done] report what came of it. Time and randomness are arguments, so
// the same code runs in the gateway and in a simulator. Start reading at
// Decide.
package route

import (
	"errors"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/prompt"
)

// ErrUnknownModel says that no worker, healthy or not, serves the model.
var ErrUnknownModel = errors.New("unknown model")

// ErrNoWorker says that the model is known but no worker can take the request
// now.
var ErrNoWorker = errors.New("no worker available")

// Query is one request to place.
type Query struct {
	ID      string // the request's id, under which the decision can be explained
	Prompt  *prompt.Request
	Session string      // names a conversation; empty when unknown, which Agent.Workflow may make up for
	Tenant  string      // who asks; empty when unknown
	Tool    string      // the agent's tool or step that the answer is for; empty when unknown
	Exclude []kv.Target // already tried in vain
	// Pin names the one worker or target to take: a target's or a worker's id,
	// or the id or URL in the worker's spec. Empty: any.
	Pin string
	// ExpectedOutputTokens is what the caller expects of the output; 0: unknown.
	ExpectedOutputTokens int
	// Agent is the agent's workflow that the request is a step of; the zero value
	// when unknown.
	Agent Agent
	// Weight is the caller's share of the router's queue against other callers'; 0
	// is 1.
	Weight float64
	// Hints are what else the caller says. The router's queue goes by the
	// priority; no policy reads the rest today.
	Hints Hints
}

// Hints are a caller's wishes beyond what a policy of today looks at; zero
// values are unsaid.
type Hints struct {
	Priority int           // as the caller means it: more is more urgent
	CacheTTL time.Duration // how long the prompt's cache will be of use, at most a day
}

// Decision is one choice, booked on its target. Exactly one [Router.Done] must
// follow, whatever happens. It must not be copied.
type Decision struct {
	ID                    string
	Target                kv.Target
	Worker                *engine.Worker // where to send the request
	PredictedCachedTokens int            // prompt tokens the worker should not have to compute
	PredictedTTFT         time.Duration
	CostMicros            float64 // expected added time; 0 under policies that price nothing
	// RenderClass is how the target turned text into tokens when the request was
	// placed; 0: not known.
	RenderClass prompt.Class

	member    *fleet.Member
	booking   fleet.Booking
	query     *prompt.Request
	bookedAt  clock.Instant
	slot      index.Slot
	ticket    index.Ticket
	output    cost.OutputKey
	seen      observation
	predicted prediction

	promised float64 // of the predicted cached tokens, those that were only promised

	session     string
	source      string      // of the hit
	guessed     float64     // tokens of the prompt
	earlier     prompt.Size // of the prompt that it goes on from
	blockTokens int         // of the target's cache

	workflow *workflow // nil without agent context
	tools    []toolKey // of its step

	trial           bool // of an open circuit
	firstByte, done bool
}

// Result says how a request ended.
type Result uint8

const (
	// Completed: the response came through.
	Completed Result = iota
	// Busy: the worker answered 429 or 503.
	Busy
	// Rejected: the worker answered another 4xx.
	Rejected
	// Failed: no connection, 5xx, or a broken response.
	Failed
	// Cancelled: the client went away.
	Cancelled
)

var resultNames = [...]string{"completed", "busy", "rejected", "failed", "cancelled"}

// String returns the result's name as used in metrics.
func (r Result) String() string { return resultNames[r] }

// Usage is what a response said about itself.
type Usage struct {
	Known            bool
	PromptTokens     int
	CachedTokens     int // -1 when not said
	CompletionTokens int
}

// Outcome is what came of a decision.
type Outcome struct {
	Result Result
	Usage  Usage
	// Unreachable says that no connection came about: the worker is left alone
	// until it answers a probe.
	Unreachable bool
	// Cause tells requests apart: the same for the same request. A worker is
	// not given up for the failures of one.
	Cause uint64
	// Caller tells callers apart in the same way: nor is it given up for one's
	// failures alone while others are served.
	Caller uint64
	// RetryAfter is how long a busy worker asked to be left alone; 0: unsaid.
	RetryAfter time.Duration
}
