package prompt

import (
	"context"
	"errors"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
)

// told are the tokens of a whole text prompt on workers of a class.
type told struct {
	class  Class
	tokens []uint32
}

// asking is what the asking before requests keeps, guarded by Learner.mu: the
// prompts told of late in two generations, how many questions are open, and
// whether there is no use at present.
type asking struct {
	last, older  map[uint64][]uint32 // by class and prompt
	lastTokens   int
	open, failed int
	pausedTill   clock.Instant
}

const (
	// maxToldTokens bounds each generation: 32 MiB. An entry counts as toldTokens
	// more, which is about what it takes besides its tokens.
	maxToldTokens = 8 << 20
	toldTokens    = 16
	// maxAsking bounds the questions open at one time: engines that hang must not
	// hold up everything. Beyond it nobody is asked.
	maxAsking = 64
	// After maxAskFailures in a row nobody is asked for askPause.
	maxAskFailures = 3
	askPause       = 5 * time.Second
)

// Prepare asks a worker for the tokens of r, of which body is the request to a
// path, where the configuration wants that. It waits no longer than that says;
// whatever goes wrong, the prompt is then known by what is known without.
func (l *Learner) Prepare(ctx context.Context, r *Request, path string, body []byte) {
	if l == nil || l.cfg.Tokenize != TokenizeEngine || r.whole == 0 || r.MediaItems > 0 || r.Prompts != 1 {
		return
	}
	now := l.deps.Clock.Now()
	m, class := l.witness(now, r.Model)
	if m == nil || !l.enter(now, r, class) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.TokenizeWait)
	defer cancel()
	answer, err := m.Worker.Render(ctx, path, r.question(body, -1))
	if err == nil && (len(answer.Tokens) == 0 || !answer.Exact && !r.mirrored) {
		err = errInexact
	}
	l.leave(r, class, answer.Tokens, err, errors.Is(ctx.Err(), context.Canceled))
	if err == nil {
		l.learned.Learn(Lesson{Class: class, Request: r, Whole: answer.Tokens, At: -1})
	}
}

// witness returns who is asked about a model's prompts: a healthy worker of the
// class that most of them are of, the one with the least in flight.
func (l *Learner) witness(now clock.Instant, model string) (*fleet.Member, Class) {
	members, _ := l.deps.Fleet.View().Serving(model)
	many := make(map[Class]int, 1)
	best := Class(0)
	for _, m := range members {
		class := Class(m.RenderClass(model, m.Cache().Slot, now))
		if class == 0 || !m.Healthy() {
			continue
		}
		if many[class]++; best == 0 || many[class] > many[best] {
			best = class
		}
	}
	var least *fleet.Member
	for _, m := range members {
		if best != 0 && m.Healthy() && Class(m.RenderClass(model, m.Cache().Slot, now)) == best &&
			(least == nil || m.Ledger.Booked() < least.Ledger.Booked()) {
			least = m
		}
	}
	return least, best
}

// enter reports whether a question about r is to be asked. Where it was answered
// before, r gets the answer.
func (l *Learner) enter(now clock.Instant, r *Request, class Class) bool {
	key := mix(r.whole, uint64(class), 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.asking
	tokens, ok := a.last[key]
	if !ok {
		if tokens, ok = a.older[key]; ok {
			a.keep(key, tokens)
		}
	}
	switch {
	case ok:
		r.told = told{class, tokens}
		l.stats.TokenizedBefore++
		return false
	case a.open >= maxAsking || now < a.pausedTill:
		l.stats.TokenizeFailed++
		return false
	}
	a.open++
	return true
}

// leave takes an answer to a question about r in.
func (l *Learner) leave(r *Request, class Class, tokens []uint32, err error, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.asking
	a.open--
	switch {
	case err == nil:
		a.failed = 0
		r.told = told{class, tokens}
		a.keep(mix(r.whole, uint64(class), 0), tokens)
		l.stats.Tokenized++
	case errors.Is(err, errInexact):
		l.stats.TokenizeFailed++
	case gone: // the client is
		l.stats.TokenizeFailed++
	default:
		l.stats.TokenizeFailed++
		if a.failed++; a.failed >= maxAskFailures {
			a.failed, a.pausedTill = 0, l.deps.Clock.Now().Add(askPause)
		}
	}
}

// keep remembers tokens. When a generation is full the one before it goes.
func (a *asking) keep(key uint64, tokens []uint32) {
	size := toldTokens + len(tokens)
	if a.last == nil || a.lastTokens+size > maxToldTokens {
		a.older, a.last, a.lastTokens = a.last, make(map[uint64][]uint32), 0
	}
	if _, twice := a.last[key]; !twice {
		a.lastTokens += size
	}
	a.last[key] = tokens
}
