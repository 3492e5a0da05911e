package prompt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// Learner asks engines about prompts, beside the requests: what class a worker
// is of, and where the boundaries of prompts are that are met again. It is the
// shell of [Learned], which decides what is worth a question and what the
// answers mean. [Learner.Run] is its one goroutine.
type Learner struct {
	cfg     Config
	learned *Learned
	deps    LearnerDeps
	wake    chan struct{}

	mu      sync.Mutex
	jobs    []*job
	budgets map[kv.WorkerID]float64 // questions that a worker may be asked now
	stats   LearnerStats
	asking  asking

	// Of Run alone.
	workers map[workerModel]*checked
}

// LearnerDeps are what a Learner works on.
type LearnerDeps struct {
	Fleet interface{ View() *fleet.View }
	Clock clock.Clock
	Log   *slog.Logger
}

// LearnerStats counts what a Learner did.
type LearnerStats struct {
	Questions uint64 // asked about prompts
	Probes    uint64 // times that a worker was asked what class it is of
	Failed    uint64 // questions without an answer that is of use
	Inexact   uint64 // prompts left alone since the worker would not mind all that makes them up
	Dropped   uint64 // questions not asked: too many waited, or for too long
	Waiting   int
	// Of prompts whose tokens were asked for before they were placed.
	Tokenized       uint64 // told by a worker
	TokenizedBefore uint64 // told before
	TokenizeFailed  uint64 // not told in time, or not at all
}

// job is a question that waits for its turn.
type job struct {
	request *Request
	class   Class
	want    Want
	key     uint64 // of the boundary, or of the prompt
	path    string
	body    []byte
	since   clock.Instant
}

const (
	// firstQuestions is what a new worker may be asked at once, and the most that
	// is saved up.
	firstQuestions = 16

	maxJobs      = 32
	maxJobBytes  = 4 << 20 // a longer body is not asked about
	maxJobsBytes = 32 << 20
	jobPatience  = 30 * time.Second
	maxBudgets   = 1 << 14

	askTimeout   = 10 * time.Second
	learnerPause = 250 * time.Millisecond
)

// NewLearner returns a learner for what cfg allows.
func NewLearner(cfg Config, learned *Learned, deps LearnerDeps) *Learner {
	return &Learner{
		cfg: cfg.WithDefaults(), learned: learned, deps: deps, wake: make(chan struct{}, 1),
		budgets: make(map[kv.WorkerID]float64), workers: make(map[workerModel]*checked),
	}
}

// Placed tells that a request went to a worker, of a class (0: unknown), with a
// body, which is copied where it is of use. again says that it is a repeated
// attempt.
func (l *Learner) Placed(r *Request, w kv.WorkerID, class Class, path string, body []byte, again bool) {
	if l == nil || again || l.cfg.Learn == Off {
		return
	}
	want := l.learned.Note(r, class)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.earn(w)
	if want.Gain <= 0 || r.MediaItems > 0 || r.Prompts != 1 {
		return
	}
	if len(body) > maxJobBytes {
		l.stats.Dropped++
		return
	}
	key := r.whole
	if want.At >= 0 {
		key = r.bounds[want.At].key
	}
	bytesNow, least := len(body), -1
	for i, j := range l.jobs {
		if j.class == class && j.key == key {
			return
		}
		bytesNow += len(j.body)
		if least < 0 || j.want.Gain < l.jobs[least].want.Gain {
			least = i
		}
	}
	if len(l.jobs) == maxJobs || bytesNow > maxJobsBytes {
		l.stats.Dropped++
		if l.jobs[least].want.Gain >= want.Gain || bytesNow-len(l.jobs[least].body) > maxJobsBytes {
			return
		}
		l.jobs = slices.Delete(l.jobs, least, least+1)
	}
	l.jobs = append(l.jobs, &job{r, class, want, key, path, bytes.Clone(body), l.deps.Clock.Now()})
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Told takes in the token ids of r's whole prompt that an answer of a worker of
// a class told. They cost no question.
func (l *Learner) Told(r *Request, class Class, ids []uint32) {
	if l == nil || l.cfg.Learn == Off || r.MediaItems > 0 || r.Prompts != 1 || r.whole == 0 {
		return
	}
	l.learned.Learn(Lesson{Class: class, Request: r, Whole: ids, At: -1})
}

// earn gives a worker's budget its share of a request.
func (l *Learner) earn(w kv.WorkerID) {
	left, known := l.budgets[w]
	if !known {
		if len(l.budgets) >= maxBudgets {
			clear(l.budgets) // of workers that are gone, nearly all
		}
		left = firstQuestions
	}
	l.budgets[w] = min(firstQuestions, left+l.cfg.LearnShare)
}

// Run asks until ctx ends.
func (l *Learner) Run(ctx context.Context) {
	tick := time.NewTicker(learnerPause)
	defer tick.Stop()
	for {
		l.check(ctx)
		for ctx.Err() == nil && l.askNext(ctx) {
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.wake:
		}
	}
}

// askNext asks the most valuable question that some worker has the budget for;
// false when there is none.
func (l *Learner) askNext(ctx context.Context) bool {
	j, w := l.take()
	if j == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := l.ask(ctx, j, w)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errInexact) {
		l.deps.Log.Debug("worker does not tell the tokens of a prompt", "worker", w.Spec.URL, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, errInexact):
		l.stats.Inexact++
	case err != nil:
		l.stats.Failed++
	}
	return true
}

// take removes the next job from the queue and pays for it.
func (l *Learner) take() (*job, *engine.Worker) {
	now, view := l.deps.Clock.Now(), l.deps.Fleet.View()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.jobs)
	l.jobs = slices.DeleteFunc(l.jobs, func(j *job) bool { return now.Sub(j.since) > jobPatience })
	l.stats.Dropped += uint64(n - len(l.jobs))
	slices.SortStableFunc(l.jobs, func(a, b *job) int { return cmp.Compare(b.want.Gain, a.want.Gain) })
	for i, j := range l.jobs {
		if m := l.richest(now, view, j); m != nil {
			l.budgets[m.Target.Worker] -= float64(j.want.Questions())
			l.stats.Questions += uint64(j.want.Questions())
			l.jobs = slices.Delete(l.jobs, i, i+1)
			return j, m.Worker
		}
	}
	return nil, nil
}

// richest returns the member of a job's class that may be asked most, one of
// SGLang's before others: there a question disturbs least.
func (l *Learner) richest(now clock.Instant, view *fleet.View, j *job) (best *fleet.Member) {
	members, _ := view.Serving(j.request.Model)
	most := 0.0
	for _, m := range members {
		left := l.budgets[m.Target.Worker]
		if left < float64(j.want.Questions()) || !m.Healthy() || Class(m.RenderClass(j.request.Model, m.Cache().Slot, now)) != j.class {
			continue
		}
		worth := left
		if m.Engine() == engine.SGLang {
			worth += firstQuestions
		}
		if worth > most {
			best, most = m, worth
		}
	}
	return best
}

// errInexact says that an answer can't be relied on for a prompt.
var errInexact = errors.New("the endpoint does not mind all that makes up the prompt")

// ask asks a worker what a job is about and has the answers learned.
func (l *Learner) ask(ctx context.Context, j *job, w *engine.Worker) error {
	r := j.request
	whole, err := w.Render(ctx, j.path, r.question(j.body, -1))
	if err != nil {
		return err
	}
	if !whole.Exact && !r.mirrored {
		return errInexact
	}
	lesson := Lesson{Class: j.class, Request: r, Whole: whole.Tokens, At: -1}
	if j.want.At >= 0 {
		part, err := w.Render(ctx, j.path, r.question(j.body, j.want.At))
		switch {
		case engine.Refused(err):
			l.learned.Refuse(j.class, r, j.want.At)
		case err != nil:
			return err
		default:
			lesson.At, lesson.Part, lesson.Prompted = j.want.At, part.Tokens, part.GenerationPrompt
		}
	}
	l.learned.Learn(lesson)
	return nil
}

// Stats returns the counts so far.
func (l *Learner) Stats() LearnerStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = len(l.jobs)
	return s
}
