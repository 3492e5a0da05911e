package kube

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/engine/discover"
)

// prefix begins the annotations, or labels, of a pod that say more of its
// worker than its pool does: engine, events-port, replay-port, dp, model, preset
// and h2c.
const prefix = "rhizome.dev/"

// podWorker returns the worker that a pod is; ok is false for one that is none
// now, since it has no address or is over.
func podWorker(cfg discover.PodsConfig, pod *object) (f discover.Found, ok bool, err error) {
	if pod.Status.PodIP == "" || pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed" {
		return f, false, nil
	}
	container, port, err := podPort(cfg.Port, pod)
	if err != nil {
		return f, false, err
	}
	pool, err := annotated(cfg.Pool, pod.Metadata)
	if err != nil {
		return f, false, err
	}
	f.Spec = pool.Spec(pod.Status.PodIP, port)
	f.Spec.ID = workerName(pod.Metadata.Namespace, pod.Metadata.Name, port)
	// A container that starts over in its pod has an empty cache.
	f.Instance = pod.Metadata.UID
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == container {
			f.Instance += "/" + strconv.Itoa(c.RestartCount)
		}
	}
	switch {
	case pod.Metadata.DeletionTimestamp != nil:
		f.Draining, f.Why = true, "terminating"
	case !ready(pod):
		f.Draining, f.Why = true, "not ready"
	}
	return f, true, nil
}

// workerName names a worker in every replica: by its pod, whose address may
// change.
func workerName(namespace, pod string, port int) string {
	return namespace + "/" + net.JoinHostPort(pod, strconv.Itoa(port))
}

func ready(pod *object) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// podPort returns the port that a pod's worker listens on, and the container
// that has it.
func podPort(wanted string, pod *object) (container string, port int, err error) {
	number, _ := strconv.Atoi(wanted)
	ports := 0
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Protocol != "" && p.Protocol != "TCP" {
				continue
			}
			ports++
			if wanted == "" || p.Name == wanted || p.ContainerPort == number {
				container, port = c.Name, p.ContainerPort
			}
		}
	}
	switch {
	case wanted == "" && ports > 1:
		return "", 0, fmt.Errorf("it has %d ports: name one by port", ports)
	case port != 0:
		return container, port, nil
	case number != 0: // a container need not list its ports
		if len(pod.Spec.Containers) == 1 {
			container = pod.Spec.Containers[0].Name
		}
		return container, number, nil
	case wanted == "":
		return "", 0, errors.New("it lists no port: name its number by port")
	}
	return "", 0, fmt.Errorf("it has no port %q", wanted)
}

// annotated returns a pool with what a pod says of itself.
func annotated(pool discover.PoolConfig, m metadata) (discover.PoolConfig, error) {
	said := func(key string) string {
		if v, ok := m.Annotations[prefix+key]; ok {
			return v
		}
		return m.Labels[prefix+key]
	}
	text := func(key string, to *string) {
		if v := said(key); v != "" {
			*to = v
		}
	}
	text("engine", &pool.Engine)
	text("model", &pool.Model)
	text("preset", &pool.Preset)
	for _, n := range []struct {
		key  string
		to   *int
		most int
	}{{"events-port", &pool.EventsPort, 65535}, {"replay-port", &pool.ReplayPort, 65535}, {"dp", &pool.Ranks, engine.MaxRanks}} {
		v := said(n.key)
		if v == "" {
			continue
		}
		number, err := strconv.Atoi(v)
		if err != nil || number < 1 || number > n.most {
			return pool, fmt.Errorf("%s%s is %q: want 1 to %d", prefix, n.key, v, n.most)
		}
		*n.to = number
	}
	if v := said("h2c"); v != "" {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return pool, fmt.Errorf("%sh2c is %q: want true or false", prefix, v)
		}
		pool.H2C = on
	}
	return pool, nil
}
