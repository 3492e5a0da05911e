package kube

import (
	"encoding/json"
	"testing"

	"github.com/rhizome-router/rhizome/engine/discover"
)

// FuzzObject reads any event as a pod's and as a slice's: whatever comes, what
// is found has a name and an address, or is refused.
func FuzzObject(f *testing.F) {
	for _, s := range []string{
		`{"type":"ADDED","object":{"metadata":{"name":"p","namespace":"n","uid":"u","annotations":{"rhizome.dev/dp":"2"}},"spec":{"containers":[{"name":"c","ports":[{"name":"http","containerPort":8000}]}]},"status":{"phase":"Running","podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"c","restartCount":3}]}}}`,
		`{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"message":"gone"}}`,
		`{"type":"MODIFIED","object":{"addressType":"IPv4","ports":[{"name":"http","port":1}],"endpoints":[{"addresses":["10.0.0.1"],"targetRef":{"kind":"Pod","name":"p"}}]}}`,
		`{"object":{"endpoints":[{},{"addresses":[""]}],"ports":[{"port":-1}],"status":{"podIP":"x y"}}}`, `{"object":null}`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var e event
		if json.Unmarshal(text, &e) != nil {
			return
		}
		for _, cfg := range []discover.PodsConfig{{Selector: "a"}, {Selector: "a", Port: "http"}, {Service: "s", Port: "8000"}, {Service: "s"}} {
			found, err := sliceWorkers(cfg, &e.Object)
			if err != nil && found != nil {
				t.Fatal("an error and workers")
			}
			if w, ok, err := podWorker(cfg, &e.Object); ok && err == nil {
				found = append(found, w)
			}
			for _, w := range found {
				if spec, err := w.Spec.Canonical(); err == nil && (spec.URL == "" || spec.Name() == "") {
					t.Fatalf("a worker without a name or an address: %+v", w)
				}
			}
		}
	})
}
