package prompt

import (
	"context"
	"slices"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
)

// workerModel is one model on one worker.
type workerModel struct {
	worker kv.WorkerID
	model  string
}

// checked is what a worker said of a model when it was last asked.
type checked struct {
	slots []index.Slot // of its members' caches then
	class Class
	first uint64 // the answer to the first probe
	// next is when it is asked again, pause how long after the last failure.
	next  clock.Instant
	pause time.Duration
	round uint64 // of check that saw it last
}

const (
	// maxCheckedModels bounds how many models are asked about.
	maxCheckedModels = 256
	minCheckPause    = time.Second
	maxCheckPause    = time.Minute
	// silentPause is when a worker is asked again that tells no tokens.
	silentPause = 10 * time.Minute
)

// quarter is how long a class holds: templates put the day's date into the head
// of a prompt, and everywhere on earth a day begins with a quarter of an hour.
const quarter = 15 * time.Minute

// check asks the workers that need asking what class they are of.
func (l *Learner) check(ctx context.Context) {
	view, now := l.deps.Fleet.View(), l.deps.Clock.Now()
	var forms []Form
	for _, m := range view.Members {
		c := m.Cache()
		f := Form{c.BlockTokens, c.SaltInRoot}
		for _, f := range []Form{f, {BlockTokens: f.BlockTokens}} { // without a salt they are alike
			if f.BlockTokens > 0 && !slices.Contains(forms, f) {
				forms = append(forms, f)
			}
		}
	}
	l.learned.SetForms(forms)
	round := uint64(now) | 1
	models := view.Models()
	for _, model := range models[:min(len(models), maxCheckedModels)] {
		members, _ := view.Serving(model.ID)
		for i, m := range members {
			if i > 0 && members[i-1].Target.Worker == m.Target.Worker {
				continue // another rank of the same
			}
			id := workerModel{m.Target.Worker, model.ID}
			c := l.workers[id]
			if c == nil {
				c = &checked{}
				l.workers[id] = c
			}
			c.round = round
			if m.Healthy() && m.Cache().Known != fleet.Unknown && ctx.Err() == nil {
				l.checkOne(ctx, c, ranksOf(members[i:]), model.ID)
			}
		}
	}
	for id, c := range l.workers {
		if c.round != round {
			delete(l.workers, id)
		}
	}
}

// ranksOf returns the first member and those of the same worker behind it.
func ranksOf(members []*fleet.Member) []*fleet.Member {
	n := 1
	for n < len(members) && members[n].Target.Worker == members[0].Target.Worker {
		n++
	}
	return members[:n]
}

// checkOne asks one worker, if it is time, about one model.
func (l *Learner) checkOne(ctx context.Context, c *checked, ranks []*fleet.Member, model string) {
	slots := make([]index.Slot, len(ranks))
	same := len(c.slots) == len(ranks)
	for i, m := range ranks {
		slots[i] = m.Cache().Slot
		same = same && c.slots[i] == slots[i]
	}
	now := l.deps.Clock.Now()
	if same && now < c.next {
		return
	}
	w := ranks[0].Worker
	// Before the question, so that a day that begins meanwhile is noticed.
	until := now.Add(untilQuarter(time.Now()))
	class, first, err := c.class, uint64(0), error(nil)
	if same && c.class != 0 && c.pause == 0 {
		var refused bool
		first, refused, err = probes[0].ask(ctx, w, model)
		if err == nil && (refused || first != c.first) {
			class = 0
		}
	} else {
		class = 0
	}
	if class == 0 && err == nil {
		class, first, err = classify(ctx, w, model)
	}
	l.mu.Lock()
	l.stats.Probes++
	l.mu.Unlock()
	now = l.deps.Clock.Now()
	if err != nil {
		if ctx.Err() == nil {
			l.deps.Log.Debug("worker does not say how it turns prompts into tokens", "worker", w.Spec.URL, "model", model, "err", err)
		}
		c.slots, c.pause = slots, min(max(minCheckPause, 2*c.pause), maxCheckPause)
		c.next = now.Add(c.pause)
		return
	}
	if class == 0 && c.class != 0 || class == 0 && c.slots == nil {
		l.deps.Log.Info("worker tells no tokens of prompts: those given as text are known there by their bytes alone", "worker", w.Spec.URL, "model", model)
	} else if class != c.class {
		l.deps.Log.Info("worker tells the tokens of prompts", "worker", w.Spec.URL, "model", model, "class", class)
	}
	c.slots, c.class, c.first, c.pause, c.next = slots, class, first, 0, until
	if class == 0 {
		c.next = now.Add(silentPause)
	}
	for i, m := range ranks {
		if m.SetRenderClass(model, uint64(class), slots[i], until) {
			l.learned.ClassChanged()
		}
	}
}

// untilQuarter is how long it is to the next quarter of an hour.
func untilQuarter(wall time.Time) time.Duration { return wall.Truncate(quarter).Add(quarter).Sub(wall) }
