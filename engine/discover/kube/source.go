package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine/discover"
)

// How long to wait before the next list, when one failed or the watch after it
// ended soon: twice as long each time.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second
	soon       = time.Second
)

// Sources returns those of a configuration, one a set of pods.
func Sources(cfg discover.KubernetesConfig, time clock.Clock, log *slog.Logger) []discover.Source {
	cfg = discover.Config{Kubernetes: cfg}.WithDefaults().Kubernetes
	common := cfg
	common.Pods = nil // of the others a source need not know
	var all []discover.Source
	for _, pods := range cfg.Pods {
		s := &source{cfg: common, pods: pods, clock: time, log: log.With("source", "kubernetes:"+pods.Key())}
		all = append(all, discover.Source{Name: "kubernetes:" + pods.Key(), Settings: []any{common, pods}, Run: s.run})
	}
	return all
}

// source follows one set of pods, or the endpoints of one Service.
type source struct {
	cfg   discover.KubernetesConfig
	pods  discover.PodsConfig
	clock clock.Clock
	log   *slog.Logger

	api     api
	path    string
	objects map[string]*object // by namespace and name
	newest  string             // the version seen last
	told    []discover.Found
	ever    bool
	refused map[string]string // why which object is no worker, as logged
}

// run follows until ctx ends.
func (s *source) run(ctx context.Context, sink discover.Sink) {
	s.api = api{cfg: s.cfg}
	s.newest, s.ever, s.refused = "", false, make(map[string]string)
	defer func() { s.api.close() }()
	pause := firstPause
	for {
		began := s.clock.Now()
		err := s.cycle(ctx, sink)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			sink.Failed(err)
		} else if s.clock.Now().Sub(began) >= min(soon, s.cfg.Resync/2) {
			pause = firstPause
			continue
		}
		if s.clock.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// cycle lists, and watches from there until the watch ends. An error says that
// the workers can't be seen now.
func (s *source) cycle(ctx context.Context, sink discover.Sink) error {
	if err := s.api.connect(); err != nil {
		return err
	}
	selector, err := s.where()
	if err != nil {
		return err
	}
	all, version, err := s.api.list(ctx, s.path, selector, s.newest)
	if status := new(statusError); s.newest != "" && (errors.Is(err, errGone) || errors.As(err, &status)) {
		s.newest = "" // this server is behind, or knows no such version: the newest it has will do
		all, version, err = s.api.list(ctx, s.path, selector, "")
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", s.path, err)
	}
	s.newest, s.objects = version, make(map[string]*object, len(all))
	for i := range all {
		s.objects[nameOf(&all[i])] = &all[i]
	}
	s.tell(sink, true)
	err = s.api.watch(ctx, s.path, selector, version, s.cfg.Resync, func(e event) error {
		s.take(e)
		s.tell(sink, false)
		return nil
	})
	switch {
	case errors.Is(err, errGone):
		s.log.Debug("the watch is too old: listing anew")
		s.newest = ""
		return nil
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return nil
	case err != nil:
		return fmt.Errorf("watch %s: %w", s.path, err)
	}
	return nil
}

// where sets the path of what is listed, and returns the selector.
func (s *source) where() (selector string, err error) {
	namespace := s.pods.Namespace
	if namespace == "" {
		file := filepath.Join(filepath.Dir(s.cfg.TokenFile), "namespace")
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("find out the router's own namespace, or name one by namespace: %w", err)
		}
		if namespace = strings.TrimSpace(string(text)); namespace == "" || strings.ContainsAny(namespace, "/?#%") {
			return "", fmt.Errorf("%s holds no namespace", file)
		}
	}
	if s.pods.Service != "" {
		s.path = "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"
		return "kubernetes.io/service-name=" + s.pods.Service, nil
	}
	s.path = "/api/v1/namespaces/" + namespace + "/pods"
	return s.pods.Selector, nil
}

func nameOf(o *object) string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// take brings one change into the objects.
func (s *source) take(e event) {
	if v := e.Object.Metadata.ResourceVersion; v != "" {
		s.newest = v
	}
	name := nameOf(&e.Object)
	switch e.Type {
	case "ADDED", "MODIFIED":
		if len(s.objects) < discover.MaxWorkers || s.objects[name] != nil {
			s.objects[name] = &e.Object
		}
	case "DELETED":
		// One of the same name may be there already.
		if o := s.objects[name]; o != nil && (e.Object.Metadata.UID == "" || o.Metadata.UID == e.Object.Metadata.UID) {
			delete(s.objects, name)
		}
	}
}

// tell reports the workers if they have changed, or always.
func (s *source) tell(sink discover.Sink, always bool) {
	found := s.workers()
	if !always && s.ever && reflect.DeepEqual(found, s.told) {
		return
	}
	s.told, s.ever = found, true
	sink.Found(slices.Clone(found))
}

// dated is a worker, and when its object was made.
type dated struct {
	discover.Found
	born time.Time
}

// workers are those that the objects are, in the order of their names. An
// address that several have is that of the youngest: the others are no more, or
// will have another one.
func (s *source) workers() []discover.Found {
	var all []dated
	refused := make(map[string]string)
	for name, o := range s.objects { // order-free: sorted below
		var found []discover.Found
		var err error
		if s.pods.Service != "" {
			found, err = sliceWorkers(s.pods, o)
		} else {
			var f discover.Found
			var ok bool
			if f, ok, err = podWorker(s.pods, o); ok {
				found = append(found, f)
			}
		}
		if err != nil {
			if refused[name] = err.Error(); s.refused[name] != err.Error() {
				s.log.Warn("an object is no worker", "object", name, "err", err)
			}
		}
		for _, f := range found {
			all = append(all, dated{f, o.Metadata.CreationTimestamp})
		}
	}
	s.refused = refused
	all = first(all, func(d dated) string { return d.Spec.URL }, func(a, b dated) int { return b.born.Compare(a.born) })
	// A Service may list one pod twice: in two families, or as it moves to
	// another slice.
	all = first(all, func(d dated) string { return d.Spec.Name() }, func(a, b dated) int {
		return cmp.Or(cmp.Compare(order(a.Draining), order(b.Draining)), cmp.Compare(order(v6(a.Found)), order(v6(b.Found))))
	})
	var out []discover.Found
	for _, d := range all {
		out = append(out, d.Found)
	}
	slices.SortFunc(out, func(a, b discover.Found) int { return strings.Compare(a.Spec.Name(), b.Spec.Name()) })
	return out
}

// first keeps of all that have one key the first by an order; names decide
// among equals.
func first(all []dated, key func(dated) string, by func(a, b dated) int) []dated {
	slices.SortFunc(all, func(a, b dated) int {
		return cmp.Or(by(a, b), strings.Compare(a.Spec.Name(), b.Spec.Name()), strings.Compare(a.Spec.URL, b.Spec.URL))
	})
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(d dated) bool {
		again := seen[key(d)]
		seen[key(d)] = true
		return again
	})
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}

// v6 reports whether a worker's host is an IPv6 address.
func v6(f discover.Found) bool { return strings.Contains(f.Spec.URL, "[") }
