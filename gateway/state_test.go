package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh/core"
	"github.com/rhizome-router/rhizome/route"
)

const responses = "/v1/responses"

// TestStateIsFollowed: a response's id is learned from an answer, plain or
// streamed, and leads what goes on from it to the same target.
func TestStateIsFollowed(t *testing.T) {
	w := testkit.NewWorker(t)
	r := newRig(t, Config{}, w)
	target := kv.Target{Worker: r.picker.workers[0].ID, Rank: kv.NoRank}.String()
	created := `{"type":"response.created","response":{"id": "resp_streamed","object":"response"}}`
	for id, answer := range map[string]string{
		"resp_plain":    testkit.JSON(200, `{"object":"response", "id" : "resp_plain","output":[{"id":"msg_1"}]}`),
		"resp_streamed": testkit.SSE(created, `{"type":"response.completed","response":{"id":"resp_streamed"}}`),
	} {
		w.Add(testkit.Script{testkit.Send(answer)})
		if a := r.post(responses, `{"model":"m","input":"x"}`); a.status != 200 || a.err != nil {
			t.Fatalf("%+v", a)
		}
		w.Always(testkit.Send(testkit.JSON(200, "{}")))
		for _, next := range []struct{ method, path, body string }{
			{"POST", responses, `{"model":"m","input":"y","previous_response_id":"` + id + `"}`},
			{"GET", responses + "/" + id + "?include[]=x", ""},
			{"DELETE", responses + "/" + id, ""},
			{"POST", responses + "/" + id + "/cancel", "not json"},
		} {
			req, _ := http.NewRequest(next.method, r.url+next.path, strings.NewReader(next.body))
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			q := r.picker.queries[len(r.picker.queries)-1]
			if resp.StatusCode != 200 || q.Pin != target || q.Prompt.Model != "m" {
				t.Errorf("%s %s: status %d, query %+v", next.method, next.path, resp.StatusCode, q)
			}
		}
	}
	for range 2 {
		w.Next(t)
	}
	if got := w.Next(t); got.Method == "" {
		t.Error("no request")
	}
}

// TestStateThatIsGone: what no target holds any more is a 404 in the API's
// shape; what was never seen here is left to the worker.
func TestStateThatIsGone(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, "{}")))
	r := newRig(t, Config{}, w)
	if a := r.post(responses, `{"model":"m","input":"y","previous_response_id":"resp_unseen"}`); a.status != 200 {
		t.Errorf("an unseen id gave %+v", a)
	}
	if a := ask(r.g, "GET", responses+"/resp_unseen"); a.Code != 404 || !strings.Contains(a.Body.String(), "previous_response_not_found") {
		t.Errorf("a path with an unseen id gave %d %s", a.Code, a.Body)
	}
	r.g.places.put(place{id: stateKey("", "resp_old"), target: kv.Target{Worker: 1}, model: "m"})
	r.picker.err = route.ErrNoWorker
	if a := r.post(responses, `{"model":"m","input":"y","previous_response_id":"resp_old"}`); a.status != 404 || !strings.Contains(a.body, "previous_response_not_found") {
		t.Errorf("state of a worker that is gone gave %+v", a)
	}
	r.picker.err = nil
}

// TestStateIsATenantsOwn: another tenant that knows an id does not reach it.
func TestStateIsATenantsOwn(t *testing.T) {
	r := keyed(t)
	r.workers[0].Add(testkit.Script{testkit.Send(testkit.JSON(200, `{"id":"resp_1"}`))})
	r.post(responses, `{"model":"m","input":"x"}`, "Authorization: Bearer key-a")
	for _, c := range []struct {
		key, tenant string
		status      int
	}{
		{"key-a", "", 200}, {"key-b", "", 404},
		{"key-a", "b", 200}, // not trusted: what it says of itself is nothing
		{"key-b", "t", 200}, // trusted to speak for others
	} {
		a := r.post(responses+"/resp_1/cancel", "", "Authorization: Bearer "+c.key, "X-Tenant-Id: "+c.tenant)
		if a.status != c.status {
			t.Errorf("%+v gave %+v", c, a)
		}
	}
}

func TestPlacesAreBounded(t *testing.T) {
	p := newPlaces(3, nil)
	for i := range 5 {
		p.put(place{id: fmt.Sprint(i), target: kv.Target{Rank: int16(i)}})
		p.get(0, "0") // used again and again
	}
	for id, want := range map[string]bool{"0": true, "1": false, "2": false, "3": true, "4": true} {
		if _, ok := p.get(0, id); ok != want {
			t.Errorf("%s is known: %v", id, ok)
		}
	}
	p.put(place{id: "4", target: kv.Target{Rank: 9}})
	if got, _ := p.get(0, "4"); got.target.Rank != 9 || len(p.byID) != 3 || p.used.Len() != 3 {
		t.Errorf("%+v, %d known", got, len(p.byID))
	}
}

// TestPlacesOfOtherReplicas: what another replica told is known until its life
// ends, though that replica goes before; what makes no sense is left out.
func TestPlacesOfOtherReplicas(t *testing.T) {
	told := wire.NewWriter(nil)
	told.Array(4)
	target := kv.Target{Worker: 7, Rank: kv.NoRank}
	told.String(core.TargetKey(target))
	told.String("m")
	told.String("alias")
	told.String("100")
	p := newPlaces(3, nil)
	p.hear(core.Replica{Name: "r"}, "id", &crdt.PageItem{Key: "id", Value: told.Bytes(), Until: 100})
	p.hear(core.Replica{Name: "r"}, "id", nil) // its page is forgotten
	if got, ok := p.get(99, "id"); !ok || got.target != target || got.model != "m" || got.named != "alias" || got.process != "100" {
		t.Errorf("%+v, %v", got, ok)
	}
	if got, ok := p.get(100, "id"); ok {
		t.Errorf("after its life: %+v", got)
	}
	for _, bad := range [][]byte{nil, {0x93}, told.Bytes()[:5], append(told.Bytes(), 1)} {
		p.hear(core.Replica{Name: "r"}, "bad", &crdt.PageItem{Key: "bad", Value: bad, Until: 100})
	}
	if _, ok := p.get(1, "bad"); ok || len(p.byID) != 0 {
		t.Error("what makes no sense is known")
	}
}

// TestStateOfAnEarlierProcess: what a worker's former process made is gone with
// it; where it is not known which process made it or runs, the worker is asked.
func TestStateOfAnEarlierProcess(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, `{"id":"resp_1"}`)))
	r := newRig(t, Config{}, w)
	runs := ""
	r.g.deps.Process = func(kv.Target) string { return runs }
	for _, c := range []struct {
		made, runs string
		status     int
	}{{"", "100", 200}, {"100", "100", 200}, {"100", "", 200}, {"100", "200", 404}, {"200", "100", 404}} {
		runs = c.made
		if a := r.post(responses, `{"model":"m","input":"x"}`); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		runs = c.runs
		if a := ask(r.g, "GET", responses+"/resp_1"); a.Code != c.status {
			t.Errorf("made by %q, now %q: status %d", c.made, c.runs, a.Code)
		}
		if a := r.post(responses, `{"model":"m","input":"y","previous_response_id":"resp_1"}`); a.status != 200 || (r.picker.queries[len(r.picker.queries)-1].Pin != "") != (c.status == 200) {
			t.Errorf("made by %q, now %q: %+v, asked %+v", c.made, c.runs, a, r.picker.queries[len(r.picker.queries)-1])
		}
	}
}

// TestStateUnderAnAlias: who may use a model by one name alone can ask for what
// it made by that name.
func TestStateUnderAnAlias(t *testing.T) {
	w := testkit.NewWorker(t)
	w.Always(testkit.Send(testkit.JSON(200, `{"id":"resp_1"}`)))
	r := newRig(t, Config{
		Keys:   []KeyConfig{{Name: "a", SHA256: hashOf("k"), Models: []string{"fast"}}},
		Models: map[string]ModelConfig{"fast": {To: []SplitConfig{{Model: "m"}}}},
	}, w)
	if a := r.post(responses, `{"model":"fast","input":"x"}`, "Authorization: Bearer k"); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	if a := ask(r.g, "GET", responses+"/resp_1", "Authorization: Bearer k"); a.Code != 200 {
		t.Errorf("its own response: %d %s", a.Code, a.Body)
	}
}
