package testkit

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Kube is a stand-in for the Kubernetes API: list and watch of pods and
// EndpointSlices, by label selectors of the form key=value, over TLS. It can be
// told to lose events, to have forgotten old versions, to break its watches and
// to refuse.
type Kube struct {
	// URL, CAFile, TokenFile are what a client is configured with. The folder of
	// the TokenFile has the namespace, "ns", too.
	URL, CAFile, TokenFile string

	mu        sync.Mutex
	version   int
	objects   map[string]map[string]any // by path and name: "pods/ns/name"
	events    []kubeEvent
	oldest    int // versions before it are gone
	token     string
	lost      bool
	broken    int // the status of every answer; 0: none
	lists     int
	watches   map[chan struct{}]bool // closed: the watch ends
	opened    int
	changed   chan struct{} // closed and replaced at each event
	pageItems int
}

type kubeEvent struct {
	version   int
	kind      string // of the path: pods, endpointslices
	typ       string
	object    map[string]any
	before    map[string]any // what it was; nil: not there
	lost      bool
	namespace string
}

// Pod is what a pod of a Kube is made from.
type Pod struct {
	Name, UID, IP       string
	Port                int
	Labels, Annotations map[string]string
	NotReady            bool
	Terminating         bool
	Restarts            int
	Phase               string // default Running
	Born                time.Time
}

// NewKube starts a stand-in, which ends with the test.
func NewKube(t testing.TB) *Kube {
	t.Helper()
	k := &Kube{version: 1, objects: make(map[string]map[string]any), token: "first-token", watches: make(map[chan struct{}]bool), changed: make(chan struct{})}
	s := httptest.NewTLSServer(k)
	t.Cleanup(func() { k.CutWatches(); s.CloseClientConnections(); s.Close() })
	dir := t.TempDir()
	k.URL, k.CAFile, k.TokenFile = s.URL, filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	for name, text := range map[string]string{
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})), "token": k.token + "\n", "namespace": "ns",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// Rotate makes another token the only one that is good, and writes it to the
// file, as the kubelet does.
func (k *Kube) Rotate(t testing.TB, token string) {
	t.Helper()
	k.mu.Lock()
	k.token = token
	k.mu.Unlock()
	if err := os.WriteFile(k.TokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
}

// SetPod makes or changes a pod in the namespace "ns".
func (k *Kube) SetPod(p Pod) {
	meta := map[string]any{"name": p.Name, "namespace": "ns", "uid": p.UID, "labels": p.Labels, "annotations": p.Annotations}
	if p.Born.IsZero() {
		p.Born = time.Unix(1, 0)
	}
	meta["creationTimestamp"] = p.Born.UTC().Format(time.RFC3339)
	if p.Terminating {
		meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
	}
	ready := "True"
	if p.NotReady {
		ready = "False"
	}
	if p.Phase == "" {
		p.Phase = "Running"
	}
	k.Set("pods", map[string]any{
		"metadata": meta,
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "engine", "ports": []any{map[string]any{"name": "http", "containerPort": p.Port}}}}},
		"status": map[string]any{"phase": p.Phase, "podIP": p.IP, "conditions": []any{map[string]any{"type": "Ready", "status": ready}},
			"containerStatuses": []any{map[string]any{"name": "engine", "restartCount": p.Restarts}}},
	})
}

// Set makes or changes an object of a kind, "pods" or "endpointslices".
func (k *Kube) Set(kind string, object map[string]any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	meta := object["metadata"].(map[string]any)
	key := kind + "/" + meta["namespace"].(string) + "/" + meta["name"].(string)
	before := k.objects[key]
	typ := "MODIFIED"
	if before == nil {
		typ = "ADDED"
	}
	k.objects[key] = object
	k.happen(kind, typ, object, before)
}

// Delete takes an object away: Delete("pods", "name").
func (k *Kube) Delete(kind, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := kind + "/ns/" + name
	if before := k.objects[key]; before != nil {
		delete(k.objects, key)
		k.happen(kind, "DELETED", before, before)
	}
}

// happen notes an event. It needs mu.
func (k *Kube) happen(kind, typ string, object, before map[string]any) {
	k.version++
	meta := maps.Clone(object["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(k.version)
	object = maps.Clone(object)
	object["metadata"] = meta
	if typ != "DELETED" {
		k.objects[kind+"/"+meta["namespace"].(string)+"/"+meta["name"].(string)] = object
	}
	k.events = append(k.events, kubeEvent{k.version, kind, typ, object, before, k.lost, meta["namespace"].(string)})
	close(k.changed)
	k.changed = make(chan struct{})
}

// Lose says whether what happens from now on is told by no watch, ever.
func (k *Kube) Lose(lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = lost
}

// Forget makes all versions so far too old to watch from: 410 Gone.
func (k *Kube) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	k.oldest = k.version
}

// Break makes every answer one of a status; 0 mends it.
func (k *Kube) Break(status int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = status
}

// CutWatches ends the watches that are open, in the middle.
func (k *Kube) CutWatches() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for w := range k.watches { // order-free: all end
		close(w)
		delete(k.watches, w)
	}
}

// Tell has all watches of a kind told something as it is: a bookmark, say, or an
// error.
func (k *Kube) Tell(kind, typ string, object map[string]any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	k.events = append(k.events, kubeEvent{k.version, kind, typ, object, nil, false, ""})
	close(k.changed)
	k.changed = make(chan struct{})
}

// Counts returns how many lists were answered, how many watches were opened,
// and how many are open.
func (k *Kube) Counts() (lists, opened, open int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lists, k.opened, len(k.watches)
}

// ServeHTTP answers GET /api/v1/namespaces/N/pods and the like.
func (k *Kube) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	kind, q := parts[len(parts)-1], r.URL.Query()
	namespace := parts[len(parts)-2]
	k.mu.Lock()
	status := k.broken
	if status == 0 && r.Header.Get("Authorization") != "Bearer "+k.token {
		status = http.StatusUnauthorized
	}
	since, _ := strconv.Atoi(q.Get("resourceVersion"))
	if status == 0 && q.Get("watch") == "true" && since < k.oldest {
		status = http.StatusGone
	}
	k.mu.Unlock()
	switch {
	case status != 0:
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","status":"Failure","code":%d,"message":"refused by the test"}`, status)
	case q.Get("watch") == "true":
		k.watch(w, r, kind, namespace, since)
	default:
		k.list(w, kind, namespace, q.Get("labelSelector"), q.Get("limit"), q.Get("continue"))
	}
}

func (k *Kube) list(w http.ResponseWriter, kind, namespace, selector, limit, from string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	most, _ := strconv.Atoi(limit)
	if k.pageItems > 0 {
		most = k.pageItems
	}
	meta := map[string]any{"resourceVersion": strconv.Itoa(k.version)}
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(k.objects)) {
		if !strings.HasPrefix(key, kind+"/"+namespace+"/") || key <= from || !picks(selector, k.objects[key]) {
			continue
		}
		if most > 0 && len(items) == most {
			meta["continue"] = lastKey(items, kind)
			break
		}
		items = append(items, k.objects[key])
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "List", "metadata": meta, "items": items}) // a client that is gone
}

// SetPages makes lists have pages of n items.
func (k *Kube) SetPages(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pageItems = n
}

func lastKey(items []any, kind string) string {
	meta := items[len(items)-1].(map[string]any)["metadata"].(map[string]any)
	return kind + "/" + meta["namespace"].(string) + "/" + meta["name"].(string)
}

// picks reports whether a selector, key=value and more after commas, picks an
// object.
func picks(selector string, object map[string]any) bool {
	if selector == "" || object == nil {
		return object != nil
	}
	labels, _ := object["metadata"].(map[string]any)["labels"].(map[string]string)
	for part := range strings.SplitSeq(selector, ",") {
		name, value, _ := strings.Cut(part, "=")
		if labels[name] != value {
			return false
		}
	}
	return true
}

func (k *Kube) watch(w http.ResponseWriter, r *http.Request, kind, namespace string, since int) {
	end := make(chan struct{})
	k.mu.Lock()
	k.opened++
	k.watches[end] = true
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.watches, end)
		k.mu.Unlock()
	}()
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	encoder := json.NewEncoder(w)
	selector := r.URL.Query().Get("labelSelector")
	for {
		k.mu.Lock()
		var due []map[string]any
		for _, e := range k.events {
			if e.version <= since || e.kind != kind || e.lost || e.namespace != "" && e.namespace != namespace {
				continue
			}
			if typ := e.seen(selector); typ != "" {
				due = append(due, map[string]any{"type": typ, "object": e.object})
			}
		}
		since = k.version
		changed := k.changed
		k.mu.Unlock()
		for _, e := range due {
			if encoder.Encode(e) != nil {
				return
			}
		}
		_ = flush.Flush()
		select {
		case <-changed:
		case <-end:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}

// seen is the type of an event for a watch with a selector: what comes into its
// sight is added, what leaves it deleted. Empty: it does not see it.
func (e kubeEvent) seen(selector string) string {
	if e.namespace == "" {
		return e.typ
	}
	is, was := e.typ != "DELETED" && picks(selector, e.object), picks(selector, e.before)
	switch {
	case is && was:
		return "MODIFIED"
	case is:
		return "ADDED"
	case was:
		return "DELETED"
	}
	return ""
}
