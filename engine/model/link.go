package model

import (
	"math"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// upload is keys[from:to] of a request on a link. The request holds the blocks
// until it has arrived.
type upload struct {
	serial   int32
	id       uint64
	keys     []kv.EngineHash
	blocks   []int32
	from, to int
	waits    []*seq // that want some of its blocks, the request included

	bytes int64
	left  float64 // bytes still to be moved; the set-up counts as bytes too
	began float64
}

// link brings blocks up from a tier: one transfer after the other, or all at
// once at equal shares. A transfer is so many bytes of work: its own, and those
// that the link would move during its set-up.
//
// Progress is only counted when a transfer begins or ends or the bandwidth
// changes, never when somebody looks, so that how often one looks changes
// nothing.
type link struct {
	setupMicros    float64
	bytesPerMicros float64
	sharing        bool

	queue []*upload // under way, in order of their beginning
	at    float64   // up to when progress is counted
	next  float64   // when the next transfer of the queue is done; +Inf: it is empty
	done  []*upload // arrived, not yet taken
	first float64   // when the first of done arrived

	loads        int64
	loadedBytes  int64
	loadedMicros float64
}

func newLink(c TierConfig) link {
	return link{setupMicros: c.SetupMicros, bytesPerMicros: c.BytesPerSecond / 1e6, sharing: c.Sharing, next: math.Inf(1)}
}

// begin queues a transfer; noise is a factor on its set-up.
func (l *link) begin(now float64, u *upload, noise float64) {
	u.left = float64(u.bytes) + noise*l.setupMicros*l.bytesPerMicros
	u.began = now
	if len(l.queue) == 0 || l.sharing {
		l.progress(now)
	}
	l.queue = append(l.queue, u)
	l.schedule()
}

// setBandwidth changes the link's speed from now on, also for transfers under
// way.
func (l *link) setBandwidth(now, bytesPerMicros float64) {
	l.run(now)
	l.progress(now)
	l.bytesPerMicros = bytesPerMicros
	l.schedule()
}

// due returns when there is something to take; +Inf: never.
func (l *link) due() float64 {
	if len(l.done) > 0 {
		return l.first
	}
	return l.next
}

// take returns the transfers that were done by now and not taken yet, in that
// order. The slice is only valid until the next call to the link.
func (l *link) take(now float64) []*upload {
	l.run(now)
	done := l.done
	l.done = l.done[:0]
	return done
}

// run ends the transfers that are done by now.
func (l *link) run(now float64) {
	for l.next <= now {
		i := l.soonest()
		l.progress(l.next)
		u := l.queue[i]
		l.queue = slices.Delete(l.queue, i, i+1)
		if len(l.done) == 0 {
			l.first = l.at
		}
		l.done = append(l.done, u)
		l.loads++
		l.loadedBytes += u.bytes
		l.loadedMicros += l.at - u.began
		if !l.sharing && len(l.queue) > 0 {
			l.queue[0].began = l.at
		}
		l.schedule()
	}
}

// moving returns the transfers that the link works on.
func (l *link) moving() []*upload {
	if l.sharing {
		return l.queue
	}
	return l.queue[:min(1, len(l.queue))]
}

// progress counts what was moved since it was last called.
func (l *link) progress(now float64) {
	moving := l.moving()
	each := (now - l.at) * l.bytesPerMicros / float64(len(moving))
	for _, u := range moving {
		u.left = max(0, u.left-each)
	}
	l.at = now
}

// soonest returns the index of the moving transfer that will be done first.
func (l *link) soonest() int {
	best := 0
	for i, u := range l.moving() {
		if u.left < l.queue[best].left {
			best = i
		}
	}
	return best
}

// schedule works out when the next transfer will be done.
func (l *link) schedule() {
	l.next = math.Inf(1)
	if n := len(l.moving()); n > 0 {
		l.next = l.at + l.queue[l.soonest()].left*float64(n)/l.bytesPerMicros
	}
}
