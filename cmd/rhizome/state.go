package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/rhizome-router/rhizome/config"
	"github.com/rhizome-router/rhizome/mesh/lease"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
	"github.com/rhizome-router/rhizome/state"
)

// saveInterval is the time between two saves: what is learned in between a
// crash loses.
const saveInterval = time.Minute

// The sections of a replica's state.
const (
	sectionLearned  = "learned"
	sectionFits     = "fits"
	sectionSessions = "sessions"
	sectionLeases   = "leases"
)

// keeper keeps what a replica learned beyond its process.
type keeper struct {
	dir     state.Dir
	learned *prompt.Learned // nil: nothing is learned of prompts
	router  *route.Router
	leases  *lease.Group // nil: none
	log     *slog.Logger
}

// restored is what an earlier process kept, as far as it can be used.
type restored struct {
	sections map[string][]byte
	at       time.Time // saved then
}

// load reads what was kept. What can't be used is logged and left out: a replica
// starts without it.
func (k *keeper) load() restored {
	sections, at, err := k.dir.Load()
	if err != nil {
		k.log.Warn("starting without what was learned before", "err", err)
	}
	r := restored{make(map[string][]byte), at}
	for _, s := range sections {
		r.sections[s.Name] = s.Data
	}
	return r
}

// beforeRouter gives back what the router is made from.
func (k *keeper) beforeRouter(r restored, cfg *config.Config) {
	if b, ok := r.sections[sectionLearned]; ok && k.learned != nil {
		k.skipped("what was learned of prompts", k.learned.Restore(b))
	}
	if b, ok := r.sections[sectionFits]; ok {
		fits, err := route.DecodeFits(b)
		k.skipped("what was learned of workers", err)
		cfg.Route.Fits = fits
	}
}

// afterRouter gives back what the router holds.
func (k *keeper) afterRouter(r restored, fits int) {
	sessions := 0
	if b, ok := r.sections[sectionSessions]; ok {
		all, err := route.DecodeSessions(b)
		k.skipped("where sessions were", err)
		k.router.RestoreSessions(all, time.Since(r.at))
		sessions = len(all)
	}
	if !r.at.IsZero() {
		prompts := 0
		if k.learned != nil {
			prompts = k.learned.Stats().Entries
		}
		k.log.Info("state restored", "dir", k.dir.Path, "saved", r.at, "prompts", prompts, "classes", fits, "sessions", sessions)
	}
}

func (k *keeper) skipped(what string, err error) {
	if err != nil {
		k.log.Warn("starting without "+what, "dir", k.dir.Path, "err", err)
	}
}

// run saves at intervals until ctx ends, and once more then.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			k.save()
			return
		case <-tick.C:
			k.save()
		}
	}
}

const (
	// slowSave is longer than a disk takes that is well.
	slowSave = 2 * time.Second
	// keptFor is how long a session is kept that nobody goes on with, and
	// keptSessions how many are at most.
	keptFor      = 24 * time.Hour
	keptSessions = 100_000
)

func (k *keeper) save() {
	sessions := route.EncodeSessions(k.router.Sessions(keptFor, min(keptSessions, int(k.dir.MaxBytes/256))))
	fits, err := route.EncodeFits(k.router.FitStates())
	if err != nil {
		k.log.Error("state not saved", "err", err)
		return
	}
	sections := []state.Section{{Name: sectionFits, Data: fits}, {Name: sectionSessions, Data: sessions}}
	leases := k.leases.Save()
	if len(leases) > int(k.dir.MaxBytes)/4 {
		leases = nil // workflows get new ones
	}
	if len(leases) > 0 {
		sections = append(sections, state.Section{Name: sectionLeases, Data: leases})
	}
	if k.learned != nil {
		room := int(k.dir.MaxBytes) - len(fits) - len(sessions) - len(leases) - 4096 // for the names and sums around them
		sections = append(sections, state.Section{Name: sectionLearned, Data: k.learned.Snapshot(room)})
	}
	began := time.Now()
	if err := k.dir.Save(sections); err != nil {
		k.log.Error("state not saved", "err", err)
	} else if took := time.Since(began); took > slowSave {
		k.log.Warn("saving the state takes long", "dir", k.dir.Path, "took", took)
	}
}
