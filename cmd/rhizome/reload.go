package main

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/config"
)

// configPoll is how often the files of the configuration are looked at. A
// change is taken up when two looks in a row saw the same: a file that is being
// written is left alone.
const configPoll = 500 * time.Millisecond

// follow takes up changes of the configuration until ctx ends: at once on a
// hang-up, and otherwise when its files have changed.
func (r *replica) follow(ctx context.Context, source config.Source, hangups <-chan os.Signal) {
	tick := time.NewTicker(configPoll)
	defer tick.Stop()
	files := r.inForce.Load().running.Files
	taken := r.inForce.Load().running.Print // of what was tried last
	seen := taken
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			r.log.Info("configuration is read again: asked by a hang-up", "file", source.File)
		case <-tick.C:
			last := seen
			if seen = config.Fingerprint(files); seen == taken || seen != last {
				continue
			}
		}
		files, taken = r.reload(source)
		seen = taken
	}
}

// reload reads the configuration and runs by it, if it is whole and good; else
// all stays as it was. It returns the files to watch and their state.
func (r *replica) reload(source config.Source) (files []string, print string) {
	next, err := source.Load()
	if err == nil {
		err = r.apply(next)
	}
	before := r.inForce.Load()
	after := &inForce{running: before.running, since: before.since, succeeded: err == nil, problem: err}
	if err == nil {
		after.running, after.since = next, time.Now()
	}
	r.inForce.Store(after)
	var bad *config.Error
	switch {
	case err == nil:
		r.log.Info("configuration reloaded", "file", source.File, "hash", next.Hash)
	case errors.As(err, &bad):
		r.log.Error("configuration not reloaded: the one before stays in force", "file", source.File, "err", bad.Brief())
	default:
		r.log.Error("configuration not reloaded: the one before stays in force", "file", source.File, "err", err)
	}
	switch {
	case next != nil:
		return next.Files, next.Print
	case bad != nil:
		return bad.Files, bad.Print
	}
	return before.running.Files, config.Fingerprint(before.running.Files)
}

// apply runs the replica by another configuration. All that can fail comes
// before anything changes, the workers last: they are taken whole or not at
// all, and the rest is swapping pointers.
func (r *replica) apply(next *config.Loaded) error {
	if err := next.CheckReload(r.inForce.Load().running); err != nil {
		return err
	}
	if len(next.Config.Workers) == 0 && !next.Config.Discovery.Any() {
		return errors.New("no workers are left: name at least one under workers, or where to find them under discovery")
	}
	front, err := r.front.Load().gateway.With(next.Config.Gateway)
	if err != nil {
		return err
	}
	if err := r.discover(next.Config); err != nil {
		return err
	}
	r.router.Reconfigure(next.Config.Route)
	r.setFront(front)
	r.level.Set(next.Config.Log.Level)
	return nil
}

// inForce is which configuration is in force, and how the last attempt to
// change it went. It never changes.
type inForce struct {
	running   *config.Loaded
	since     time.Time
	succeeded bool
	problem   error
}

// describe is what the admin API shows as /config.
func (f *inForce) describe() any {
	type problem struct {
		At      string `json:"at,omitempty"`
		Key     string `json:"key,omitempty"`
		Message string `json:"message"`
	}
	shown := struct {
		Hash       string           `json:"hash"`
		Files      []string         `json:"files"`
		Since      time.Time        `json:"since"`
		Successful bool             `json:"last_reload_successful"`
		Problems   []problem        `json:"problems"`
		Settings   []config.Setting `json:"settings"`
	}{f.running.Hash, append([]string{}, f.running.Files...), f.since, f.succeeded, []problem{}, f.running.Settings()}
	var bad *config.Error
	switch {
	case errors.As(f.problem, &bad):
		for _, p := range bad.Problems {
			shown.Problems = append(shown.Problems, problem{p.Origin.String(), p.Key, p.Text})
		}
	case f.problem != nil:
		shown.Problems = append(shown.Problems, problem{Message: f.problem.Error()})
	}
	return shown
}

// configMetrics are how the configuration stands.
type configMetrics struct {
	force                     *atomic.Pointer[inForce]
	successful, success, hash *prometheus.Desc
}

func newConfigMetrics(force *atomic.Pointer[inForce]) *configMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("rhizome_config_"+name, help, nil, nil)
	}
	return &configMetrics{force,
		desc("last_reload_successful", "Whether the last attempt to read the configuration succeeded."),
		desc("last_reload_success_timestamp_seconds", "When the configuration in force was read."),
		desc("hash", "Hash of the configuration in force, secrets included: equal on replicas with equal settings."),
	}
}

func (m *configMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.successful
	out <- m.success
	out <- m.hash
}

func (m *configMetrics) Collect(out chan<- prometheus.Metric) {
	f := m.force.Load()
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	ok := 0.0
	if f.succeeded {
		ok = 1
	}
	gauge(m.successful, ok)
	gauge(m.success, float64(f.since.UnixNano())/1e9)
	gauge(m.hash, f.running.HashNumber())
}
