package chaos

import (
	"context"
	"time"
)

// Ground plays scenarios.
type Ground interface {
	Place() Place
	// Ready tells what the ground lacks here (rights, tools); nil if nothing. A
	// ground that is not ready has not passed.
	Ready() error
	// Run plays a scenario from a seed. An error means that it could not be
	// played to its end, never that something was wrong with what it saw.
	Run(ctx context.Context, s *Scenario, seed uint64) (*History, error)
}

// History is what happened in one run. Times are since its start.
type History struct {
	Scenario string
	Place    Place
	Seed     uint64
	// Faults are in order of time; a fault that began and ended is in it twice.
	Faults   []Happening
	Requests []Request
	// Samples are in order of time: how each live replica stood, at least every
	// 500 ms.
	Samples []Sample
	// Replicas are the times in which replicas ran and could answer, in order of time;
	// nil where there are no requests.
	Replicas []ReplicaLife
	// Workers are the lives of workers as they truly were, in order of time.
	Workers []WorkerLife
	// Truths are what the engines held at the end; nil where the ground can't tell.
	Truths []Stream
	// Leases is the log of lease operations as their callers saw them, Clusters where
	// each cluster that they met comes from.
	Leases   []LeaseOp
	Clusters []LeaseCluster
	// IdealTTFT is the mean TTFT of the same work under one router that knows
	// everything at once; 0 where the ground can't tell.
	IdealTTFT time.Duration
	// End is when the run was over.
	End time.Duration
	// Stalled is for how long the machine had no time for the run, or for a fault to
	// begin or end, at most; 0 where time is virtual.
	Stalled time.Duration
}

// Happening is the beginning or the end of a fault.
type Happening struct {
	At    time.Duration
	Fault int // of the scenario's faults
	Ends  bool
}

// Outcome is how a request ended for its client.
type Outcome string

// The outcomes. All but Open and Cut are documented ends.
const (
	Open        Outcome = "open"         // it never ended
	Answered    Outcome = "answered"     // the whole answer came
	Refused     Outcome = "refused"      // a documented error before the first byte, such as 503
	WorkerLost  Outcome = "worker-lost"  // a documented error after the first byte, for its worker died
	ReplicaLost Outcome = "replica-lost" // the connection broke, for its replica died
	Short       Outcome = "short"        // it looked whole and was not: never allowed
)

// Request is one request from its client's side.
type Request struct {
	ID      uint64
	At      time.Duration
	First   time.Duration // its first byte; 0 if none came
	End     time.Duration
	Replica int // that took it
	Worker  int // that it was last sent to, -1 if to none
	// Sent is when it was sent to that worker. Tries are all that it was sent to,
	// this one included; nil where the ground can't tell.
	Sent    time.Duration
	Tries   []Try
	Outcome Outcome
	Ends    int // how often it ended; must be 1
	// PromptTokens, of which CachedTokens were found.
	PromptTokens, CachedTokens int
	Faultless                  bool // neither its replica nor its workers died while it ran
}

// Try is when a request was sent to a worker.
type Try struct {
	At     time.Duration
	Worker int
}

// MeanTTFT is the mean time to the first byte of the requests that were answered.
func MeanTTFT(all []Request) time.Duration {
	var sum time.Duration
	n := 0
	for i := range all {
		if r := &all[i]; r.Outcome == Answered {
			sum += r.First - r.At
			n++
		}
	}
	return sum / time.Duration(max(1, n))
}

// Sample is how one replica stood at one moment.
type Sample struct {
	At      time.Duration
	Replica int
	Name    string // unique to the boot
	// Live is false for a replica that is dead or stands still: nothing below
	// counts then.
	Live bool
	// Silent says that it runs, and should be live, and answers nothing.
	Silent bool
	// Members are the names of replicas that it takes for alive, itself included,
	// sorted; Joined those to which it has a connection.
	Members, Joined []string
	// InFlight is how many requests it has booked; Slots how many workers' slots
	// its index has, and Promises how many blocks are promised.
	InFlight, Slots, Promises int
	// Healthy are the workers that it would send requests to, sorted, and
	// Following those of which it knows a current stream.
	Healthy, Following []int
	Streams            []Stream
	// MissingBytes is what it is known to lack of peers' streams.
	MissingBytes int
	// Corrupt counts equal logs with unequal contents; must be 0. LostOps are
	// batches given up for another's log.
	Corrupt, LostOps uint64
	// Tickets are promises of other replicas that are held here.
	Tickets []Ticket
	// Leader is the number of the replica that it takes for the leader, -1 for
	// none; Leases a digest of its table, Applied how far it is with the log.
	Leader  int
	Leases  uint64
	Applied uint64
	// Memory and Goroutines of the process; 0 where the ground can't tell.
	Memory     int64
	Goroutines int
	// Told are the names of faults (metrics that moved, lines of the log) that a
	// replica has shown so far, sorted.
	Told []string
}

// Stream is how far a replica, or an engine itself, is with a worker's log.
type Stream struct {
	Worker int
	Boot   uint64
	Next   uint64 // the number of the next batch
	Skips  uint64 // a hash of what was skipped; 0 for nothing
	Digest uint64
	Marks  []Mark
	// Truncated says that memory was short, so that the digest means nothing.
	Truncated bool
}

// Mark is a digest at a number where all replicas note one.
type Mark struct{ Next, Skips, Digest uint64 }

// Ticket is a promise of blocks held for a peer's request.
type Ticket struct {
	Origin   string
	No       uint64
	Deadline time.Duration
	Fenced   bool // its origin was fenced, and is
}

// WorkerLife is a time during which a worker was up.
type WorkerLife struct {
	Worker      int
	Boot        uint64
	From, Until time.Duration // Until 0: to the end
}

// ReplicaLife is a time during which a replica ran and did not stand still.
type ReplicaLife struct {
	Replica     int
	From, Until time.Duration // Until 0: to the end
}
