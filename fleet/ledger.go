package fleet

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/kv"
)

// Booking is one request's share of a worker, from the decision to the end.
// Its exported fields are set before [Ledger.Book] and not changed after.
type Booking struct {
	PromptTokens   float64
	HBMTokens      float64 // hit in HBM
	UncachedTokens float64 // p
	UncachedPairs  float64 // p·(ctx + p/2)
	OutputTokens   float64 // d, predicted, per choice
	Choices        float64
	// WorkMicros is the time that its prefill adds to those before it.
	WorkMicros float64
	// Parts tell what it shares with other prompts. InUseTokens is what others
	// in flight held of it at booking.
	Parts       Parts
	InUseTokens float64
	// PredictedTTFT is how long the first token should take.
	PredictedTTFT time.Duration
	// Silent says that the response shows no first token (not a stream). Its
	// prefill counts as done when the worker's KV events show LastBlock, the
	// last full block of the prompt, or when it should have been done twice
	// over; where they can't show it (0), when the prediction says so.
	Silent    bool
	LastBlock kv.Key

	bookedAt   clock.Instant
	clockAt    clock.Instant // the virtual clock after it
	stage      stage
	queuedTill clock.Instant // counts as queued no longer than this
	finishAt   clock.Instant // predicted, once decoding
}

type stage uint8

const (
	unbooked stage = iota
	queued
	decoding
	released
)

// Ledger holds the requests that this replica has in flight on one target and
// gives their sum as a [cost.Load]. A target serves prefills in the order of
// booking. It is not safe for concurrent use: the router owns it.
type Ledger struct {
	queue     []*Booking // prefill not done, in order of booking
	residents []*Booking // decoding, earliest predicted finish first
	sums      sums
	// headSince is when the prefill of queue[0] could start.
	headSince clock.Instant
	clock     virtualClock
	occupied  occupied
	work      Work
	workAt    clock.Instant
	scratch   []cost.Resident
	booked    atomic.Int32 // InFlight, for readers outside the router
	changes   uint64
}

// sums are the aggregates, so that a decision costs the same however many
// requests are in flight.
type sums struct {
	queuedTokens, queuedPairs float64
	queuedMicros              float64 // Σ WorkMicros
	sequences                 float64 // decoding, choices counted
	contextTokens             float64 // of decoding ones
	ownTokens                 float64 // KV that only one of them holds: see Booking.ownTokens
	finishSeconds             float64 // Σ predicted finish, weighted by choices
}

// InFlight returns how many requests are booked and not released.
func (l *Ledger) InFlight() int { return len(l.queue) + len(l.residents) }

// Booked is InFlight for anyone: it may be called at any time.
func (l *Ledger) Booked() int { return int(l.booked.Load()) }

// Changes counts what happened to the bookings: while it stays the same, time
// alone has changed anything.
func (l *Ledger) Changes() uint64 { return l.changes }

// Book adds b to the queue.
func (l *Ledger) Book(now clock.Instant, b *Booking) {
	if b.stage != unbooked {
		panic("fleet: a booking is booked twice")
	}
	l.elapse(now)
	l.work.Booked += b.UncachedTokens
	b.stage = queued
	patience := 2*b.PredictedTTFT + time.Second
	switch {
	case b.Silent && b.LastBlock == 0:
		patience = b.PredictedTTFT
	case b.Silent:
		patience = 2 * b.PredictedTTFT
	}
	l.changes++
	l.clock.book(now, b)
	b.queuedTill = now.Add(patience)
	if len(l.queue) == 0 {
		l.headSince = now
	}
	l.queue = append(l.queue, b)
	l.booked.Add(1)
	l.sums.queuedTokens += b.UncachedTokens
	l.sums.queuedPairs += b.UncachedPairs
	l.sums.queuedMicros += b.WorkMicros
	l.sums.ownTokens += b.ownTokens()
	l.occupied.add(&b.Parts, now.Add(b.PredictedTTFT))
}

// InUseTokens returns how many leading tokens of a prompt the requests in
// flight hold already, to within some blocks: admitting it takes no room for
// them. What lies idle in the cache does take room once it is used.
func (l *Ledger) InUseTokens(p *Parts) float64 { return l.occupied.leading(p) }

// ReadyIn returns how long the requests in flight that hold the leading part of
// a prompt were predicted to need until they have computed it, from now on; 0
// where none does, or that time has passed.
func (l *Ledger) ReadyIn(now clock.Instant, p *Parts) time.Duration {
	return max(0, l.occupied.ready(p).Sub(now))
}

// FirstToken moves b from the queue to the decoding ones; tokenTime is the
// predicted time per output token. Only the first call does anything.
func (l *Ledger) FirstToken(now clock.Instant, b *Booking, tokenTime time.Duration) {
	if b.stage != queued {
		return
	}
	l.clock.proved(now, l.behindMicros(slices.Index(l.queue, b)))
	l.decode(now, b, tokenTime)
}

// decode moves b, which is queued, on to the decoding ones.
func (l *Ledger) decode(now clock.Instant, b *Booking, tokenTime time.Duration) {
	l.elapse(now)
	l.unqueue(now, b)
	l.work.Prefills++
	l.work.PrefillTokens += b.UncachedTokens
	l.work.PrefillPairs += b.UncachedPairs
	l.changes++
	b.stage = decoding
	b.finishAt = now.Add(time.Duration(b.OutputTokens) * tokenTime)
	i, _ := slices.BinarySearchFunc(l.residents, b.finishAt, func(r *Booking, t clock.Instant) int {
		return int(max(-1, min(1, r.finishAt.Sub(t))))
	})
	l.residents = slices.Insert(l.residents, i, b)
	l.sums.sequences += b.Choices
	l.sums.contextTokens += b.contextTokens()
	l.sums.finishSeconds += b.Choices * time.Duration(b.finishAt).Seconds()
}

// Release takes b out, wherever it stands. Only the first call does anything.
func (l *Ledger) Release(now clock.Instant, b *Booking) {
	l.elapse(now)
	switch b.stage {
	case queued:
		l.unqueue(now, b)
		l.clock.withdrawn(now, b)
	case decoding:
		i := slices.Index(l.residents, b)
		l.residents = slices.Delete(l.residents, i, i+1)
		l.sums.sequences -= b.Choices
		l.sums.contextTokens -= b.contextTokens()
		l.sums.finishSeconds -= b.Choices * time.Duration(b.finishAt).Seconds()
	default:
		return
	}
	b.stage = released
	l.changes++
	l.booked.Add(-1)
	l.sums.ownTokens -= b.ownTokens()
	l.occupied.remove(&b.Parts)
	if l.InFlight() == 0 {
		l.sums, l.occupied.tokens = sums{}, 0 // nothing drifts, however long the process lives
	}
}

func (l *Ledger) unqueue(now clock.Instant, b *Booking) {
	i := slices.Index(l.queue, b)
	l.queue = slices.Delete(l.queue, i, i+1)
	if i == 0 {
		l.headSince = now
	}
	l.sums.queuedTokens -= b.UncachedTokens
	l.sums.queuedPairs -= b.UncachedPairs
	l.sums.queuedMicros -= b.WorkMicros
	if len(l.queue) == 0 { // what rounding leaves would cost a step
		l.sums.queuedTokens, l.sums.queuedPairs, l.sums.queuedMicros = 0, 0, 0
	}
}

// Settle counts as decoding whatever should have got its first token by now
// and can't or didn't show it.
func (l *Ledger) Settle(now clock.Instant, tokenTime time.Duration) {
	for i := 0; i < len(l.queue); {
		if b := l.queue[i]; b.queuedTill <= now {
			l.decode(now, b, tokenTime)
			continue
		}
		if i++; i >= settleScan {
			return
		}
	}
}

// settleScan bounds how far behind the head Settle looks.
const settleScan = 16

// Load returns the sum of what is in flight as the cost model reads it. class
// tells how far the prefills at the head have come by now. needResidents asks
// for the residents one by one, which only a full worker needs; the slice is
// valid until the next call.
func (l *Ledger) Load(now clock.Instant, class *cost.Class, tokenTime time.Duration, needResidents bool) cost.Load {
	load := cost.Load{
		QueuedTokens: l.sums.queuedTokens, QueuedPairs: l.sums.queuedPairs, QueuedSeqs: len(l.queue),
		Decoding: l.sums.sequences, ContextTokens: l.sums.contextTokens, UniqueTokens: l.sums.ownTokens + l.occupied.tokens,
	}
	tokens, pairs := l.progress(now, class)
	load.QueuedTokens = max(0, load.QueuedTokens-tokens)
	load.QueuedPairs = max(0, load.QueuedPairs-pairs)
	if l.sums.sequences > 0 && tokenTime > 0 {
		left := l.sums.finishSeconds - l.sums.sequences*time.Duration(now).Seconds()
		load.RemainingTokens = max(l.sums.sequences, left/tokenTime.Seconds())
	}
	if needResidents {
		l.scratch = l.scratch[:0]
		for _, b := range l.residents {
			remaining := 1.0
			if tokenTime > 0 {
				remaining = max(1, float64(b.finishAt.Sub(now))/float64(tokenTime))
			}
			l.scratch = append(l.scratch, cost.Resident{RemainingTokens: remaining, ExclusiveTokens: b.exclusiveTokens()})
		}
		load.Residents = l.scratch
	}
	return load
}

// progressScan bounds how far behind the head progress looks.
const progressScan = 8

// progress is how much of the queue should be computed by now, though no first
// token has shown it: the head's prefill has run since headSince, and when it
// should be done the next one's has begun. Nobody is taken to be quite done
// without evidence, and after twice the head's time the queue stands still: a
// worker that hangs must not look idle.
func (l *Ledger) progress(now clock.Instant, class *cost.Class) (tokens, pairs float64) {
	const most = 0.95
	var ran float64 // µs
	for i, b := range l.queue[:min(len(l.queue), progressScan)] {
		whole := prefillMicros(b, class)
		if i == 0 {
			ran = min(float64(now.Sub(l.headSince).Microseconds()), 2*whole)
		}
		if ran <= 0 {
			return tokens, pairs
		}
		done := min(most, ran/whole)
		tokens += done * b.UncachedTokens
		pairs += done * b.UncachedPairs
		ran -= whole
	}
	return tokens, pairs
}

// prefillMicros is how long b's prefill takes on a worker with nothing else to
// do, more than 0.
func prefillMicros(b *Booking, class *cost.Class) float64 {
	return max(1, class.PrefillMicros(b.UncachedTokens)+class.PairMicros*(b.UncachedPairs-cost.Pairs(b.UncachedTokens, 0)))
}

// exclusiveTokens is the KV that b's end will free: what it holds at its full
// length and nobody else does.
func (b *Booking) exclusiveTokens() float64 {
	return b.PromptTokens - b.InUseTokens + b.Choices*b.OutputTokens
}

// ownTokens is the KV of b, at its full length, that no key stands for.
func (b *Booking) ownTokens() float64 {
	return max(0, b.PromptTokens-b.Parts.covered()) + b.Choices*b.OutputTokens
}

// contextTokens is what b's sequences read in an average step.
func (b *Booking) contextTokens() float64 {
	return b.Choices * (b.PromptTokens + b.OutputTokens/2)
}
