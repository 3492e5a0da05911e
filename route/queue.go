package route

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// Waiting is a request in the router's queue: see [Router.Enter]. The router's
// lock guards it.
type Waiting struct {
	query  Query
	since  clock.Instant
	merit  float64 // weight per second of work
	placed func(*Decision, error)

	maxWait time.Duration // when it came; never changed

	line            *line // nil once it has left the queue
	level           *level
	lane            int
	skip            bool // scratch of a search
	overtaken       int  // times that one behind it went first: see placeFrom
	inLane, inOrder links
}

// MaxWait is how long the request was to wait at most when it came.
func (w *Waiting) MaxWait() time.Duration { return w.maxWait }

// links are a request's neighbours in a list: the one before it and after it.
type links struct{ before, after *Waiting }

// queue holds the requests that wait for a worker, until each is taken out.
// Which one goes first: strictly by priority, then by
//
//	merit·(1 + wait/ageing),  merit = weight/work
//
// so short work goes first, and what waits gains on what comes later. Since the
// lines merit·(1 + wait/ageing) of two requests may cross, no fixed order holds.
// Requests of nearly the same merit share a lane, in which the oldest goes
// first; so the next one is found among the lanes' heads, however many wait.
// Two requests may change places if their merits differ by less than a lane's
// width, 19 %. The zero value is empty.
type queue struct {
	lines  []*line // by model, those with somebody waiting, in order of name
	oldest *Waiting
	newest *Waiting
	size   int
}

// line is those that wait for one model.
type line struct {
	model  string
	levels []*level // those with somebody waiting, the highest priority first
	size   int
	passed bool // scratch of a search: there is no room for its head
}

// level is those of one priority.
type level struct {
	priority int
	lanes    [lanes]struct{ first, last *Waiting }
	size     int
}

const (
	// lanesPerOctave lanes to a factor of 2 of merit.
	lanesPerOctave = 4
	// lanes reach from merit 2^-12 to 2^12, that is work of 4096 s to 0.24 ms at
	// weight 1; what lies beyond shares the outermost.
	lanes = 24*lanesPerOctave + 1
	// ageing is the wait that doubles a request's standing.
	ageing = 10 * time.Second
)

func laneOf(merit float64) int {
	at := math.Log2(merit)*lanesPerOctave + lanes/2
	return int(max(0, min(at, lanes-1)))
}

// standing is what w's turn goes by among those of its priority.
func (w *Waiting) standing(now clock.Instant) float64 {
	return w.merit * (1 + float64(now.Sub(w.since))/float64(ageing))
}

// add puts w, which stands nowhere yet, into the queue. Its merit is more than 0.
func (q *queue) add(w *Waiting) {
	i, found := slices.BinarySearchFunc(q.lines, w.query.Prompt.Model, func(l *line, model string) int { return cmp.Compare(l.model, model) })
	if !found {
		q.lines = slices.Insert(q.lines, i, &line{model: w.query.Prompt.Model})
	}
	w.line = q.lines[i]
	// The highest priority comes first.
	at, found := slices.BinarySearchFunc(w.line.levels, w.query.Hints.Priority, func(l *level, p int) int { return cmp.Compare(p, l.priority) })
	if !found {
		w.line.levels = slices.Insert(w.line.levels, at, &level{priority: w.query.Hints.Priority})
	}
	w.level, w.lane = w.line.levels[at], laneOf(w.merit)
	if q.newest != nil {
		w.since = max(w.since, q.newest.since)
	}
	lane := &w.level.lanes[w.lane]
	if w.inLane.before = lane.last; lane.last != nil {
		lane.last.inLane.after = w
	} else {
		lane.first = w
	}
	lane.last = w
	if w.inOrder.before = q.newest; q.newest != nil {
		q.newest.inOrder.after = w
	} else {
		q.oldest = w
	}
	q.newest = w
	w.level.size++
	w.line.size++
	q.size++
}

// remove takes w out; false when it is not there any more.
func (q *queue) remove(w *Waiting) bool {
	if w.line == nil {
		return false
	}
	lane := &w.level.lanes[w.lane]
	if b := w.inLane.before; b != nil {
		b.inLane.after = w.inLane.after
	} else {
		lane.first = w.inLane.after
	}
	if a := w.inLane.after; a != nil {
		a.inLane.before = w.inLane.before
	} else {
		lane.last = w.inLane.before
	}
	if b := w.inOrder.before; b != nil {
		b.inOrder.after = w.inOrder.after
	} else {
		q.oldest = w.inOrder.after
	}
	if a := w.inOrder.after; a != nil {
		a.inOrder.before = w.inOrder.before
	} else {
		q.newest = w.inOrder.before
	}
	if w.level.size--; w.level.size == 0 {
		w.line.levels = slices.DeleteFunc(w.line.levels, func(l *level) bool { return l == w.level })
	}
	if w.line.size--; w.line.size == 0 {
		q.lines = slices.DeleteFunc(q.lines, func(l *line) bool { return l == w.line })
	}
	q.size--
	w.line, w.level, w.inLane, w.inOrder = nil, nil, links{}, links{}
	return true
}

// next returns whose turn it is among the lines that are not passed; nil when
// there is nobody.
func (q *queue) next(now clock.Instant) (best *Waiting) {
	most, priority := 0.0, 0
	for _, l := range q.lines {
		if l.passed {
			continue
		}
		top := l.levels[0]
		if best != nil && top.priority < priority {
			continue
		}
		if best != nil && top.priority > priority {
			best = nil
		}
		priority = top.priority
		for i := len(top.lanes) - 1; i >= 0; i-- {
			w := top.lanes[i].first
			for w != nil && w.skip {
				w = w.inLane.after
			}
			if w == nil {
				continue
			}
			if s := w.standing(now); best == nil || s > most {
				best, most = w, s
			}
		}
	}
	return best
}

// line returns the requests that wait for a model; nil when none does.
func (q *queue) line(model string) *line {
	i, found := slices.BinarySearchFunc(q.lines, model, func(l *line, model string) int { return cmp.Compare(l.model, model) })
	if !found {
		return nil
	}
	return q.lines[i]
}
