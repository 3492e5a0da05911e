package discover

import (
	"context"
	"reflect"
	"sync"

	"github.com/rhizome-router/rhizome/engine"
)

// MaxWorkers is the most workers that one source may tell; what is beyond is
// left out.
const MaxWorkers = 16384

// Found is one worker as a source sees it at one moment.
type Found struct {
	// Spec says where the worker is and what is known of it.
	Spec engine.Spec
	// Instance names this life of what runs there, as far as the source can
	// tell: another one means that nothing known of the one before holds. Empty:
	// the source can't tell.
	Instance string
	// Draining says that the worker is there but is to get nothing new, and Why
	// is the source's word for it.
	Draining bool
	Why      string
}

// Sink takes what a source has to say. A source calls it from one goroutine.
type Sink interface {
	// Found takes the whole list of workers that the source sees now. It keeps
	// the slice.
	Found(all []Found)
	// Failed takes note that the source can't see for now; the list before
	// stays in force.
	Failed(err error)
}

// Source is one place where workers are found.
type Source struct {
	// Name is unique among the sources of a router; it is shown, and a label of
	// metrics.
	Name string
	// Settings are what the source was made from. One that has the same Name and
	// Settings after a change of the configuration goes on undisturbed.
	Settings any
	// Run looks until ctx ends and then returns.
	Run func(ctx context.Context, sink Sink)
}

// Runner keeps sources running. The zero value has none; Sink must be set
// before Set is called.
type Runner struct {
	// Sink returns where the source of a name reports to.
	Sink func(name string) Sink

	mu      sync.Mutex
	ctx     context.Context // of Run; nil while it doesn't run
	sources []*running
	wg      sync.WaitGroup
}

// running is one source and the way to end it.
type running struct {
	Source
	stop context.CancelFunc // nil: not started
	over chan struct{}      // closed when it has returned
}

// Set makes sources the ones that run: those that stay go on, others end, new
// ones begin. One that takes the place of another of its name begins when that
// has returned. It may be called before, while and after Run runs.
func (r *Runner) Set(sources []Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.sources
	r.sources = nil
	for _, s := range sources {
		var before *running
		for _, o := range old {
			if o.Name == s.Name {
				before = o
			}
		}
		if before != nil && reflect.DeepEqual(before.Settings, s.Settings) {
			r.sources = append(r.sources, before)
			continue
		}
		r.sources = append(r.sources, &running{Source: s})
	}
	for _, o := range old {
		if o.stop != nil && !r.has(o) {
			o.stop()
		}
	}
	for _, s := range r.sources {
		if r.ctx == nil || s.stop != nil {
			continue
		}
		var after <-chan struct{}
		for _, o := range old {
			if o.Name == s.Name {
				after = o.over
			}
		}
		r.start(s, after)
	}
}

func (r *Runner) has(s *running) bool {
	for _, o := range r.sources {
		if o == s {
			return true
		}
	}
	return false
}

// Run runs the sources until ctx ends and all have returned.
func (r *Runner) Run(ctx context.Context) {
	r.mu.Lock()
	r.ctx = ctx
	for _, s := range r.sources {
		r.start(s, nil)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.ctx = nil // nobody is started any more
	r.mu.Unlock()
	r.wg.Wait()
}

// start has s run once after is closed. It needs mu.
func (r *Runner) start(s *running, after <-chan struct{}) {
	ctx, stop := context.WithCancel(r.ctx)
	s.stop, s.over = stop, make(chan struct{})
	r.wg.Go(func() {
		defer close(s.over)
		defer stop()
		if after != nil {
			<-after
		}
		s.Run(ctx, r.Sink(s.Name))
	})
}
