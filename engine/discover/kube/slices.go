package kube

import (
	"fmt"
	"strconv"

	"github.com/rhizome-router/rhizome/engine/discover"
)

// sliceWorkers returns the workers that are the endpoints of a slice.
func sliceWorkers(cfg discover.PodsConfig, slice *object) ([]discover.Found, error) {
	if slice.AddressType == "FQDN" || len(slice.Endpoints) == 0 {
		return nil, nil
	}
	port, err := slicePort(cfg.Port, slice.Ports)
	if err != nil {
		return nil, err
	}
	var found []discover.Found
	for _, e := range slice.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		f := discover.Found{Spec: cfg.Pool.Spec(e.Addresses[0], port)}
		if ref := e.TargetRef; ref != nil && ref.Kind == "Pod" {
			f.Spec.ID, f.Instance = workerName(slice.Metadata.Namespace, ref.Name, port), ref.UID
		}
		switch {
		case e.Conditions.Terminating != nil && *e.Conditions.Terminating:
			f.Draining, f.Why = true, "terminating"
		case e.Conditions.Ready != nil && !*e.Conditions.Ready:
			f.Draining, f.Why = true, "not ready"
		}
		found = append(found, f)
	}
	return found, nil
}

func slicePort(wanted string, ports []endpointPort) (int, error) {
	number, _ := strconv.Atoi(wanted)
	n, only := 0, 0
	for _, p := range ports {
		if p.Protocol != "" && p.Protocol != "TCP" || p.Port == 0 {
			continue
		}
		if wanted != "" && (p.Name == wanted || p.Port == number) {
			return p.Port, nil
		}
		n, only = n+1, p.Port
	}
	switch {
	case wanted == "" && n == 1:
		return only, nil
	case wanted == "":
		return 0, fmt.Errorf("it has %d ports: name one by port", n)
	}
	return 0, fmt.Errorf("it has no port %q", wanted)
}
