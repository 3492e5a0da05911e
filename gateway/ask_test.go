package gateway

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/internal/testkit"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/route"
)

// quietFleet is a fleet whose members nothing drives.
type quietFleet struct {
	view    *fleet.View
	members []*fleet.Member
}

func (f *quietFleet) View() *fleet.View { return f.view }

func (f *quietFleet) inFlight() (n int) {
	for _, m := range f.members {
		n += m.Ledger.Booked()
	}
	return n
}

// newAsked is a gateway with the true router over members that are never sent
// anything.
func newAsked(t *testing.T, cfg Config) (*Gateway, *quietFleet, *route.Router) {
	t.Helper()
	prefixes := index.New(index.Config{})
	f := new(quietFleet)
	for i := range 3 {
		spec, err := engine.ParseSpec(fmt.Sprintf("http://127.0.0.1:%d", 18000+i))
		if err != nil {
			t.Fatal(err)
		}
		w, err := engine.NewWorker("test", spec)
		if err != nil {
			t.Fatal(err)
		}
		m := fleet.NewMember(kv.Target{Worker: w.ID, Rank: kv.NoRank}, w, cost.Generic(), prefixes.Open(index.HBMThenOneTier))
		m.SetHealthy(true)
		f.members = append(f.members, m)
	}
	f.view = fleet.NewView(f.members, []fleet.Served{{Model: engine.Model{ID: "m"}, Members: f.members}})
	router := route.New(route.Config{Policy: route.Rhizome, Weights: cost.DefaultWeights(), NearTie: route.DefaultMargins(), Article: cost.DefaultArticle(), Seed: 1},
		route.Deps{Fleet: f, Index: prefixes, Approx: index.NewApprox(index.ApproxConfig{MaxEntries: 1 << 12}), Clock: clock.Real()})
	registry := prometheus.NewRegistry()
	g, err := New(cfg, Deps{Decider: router, Queue: router, Models: func() []engine.Model { return f.view.Models() }, Preview: router.Preview,
		Explain:    func(id string) (any, bool) { return router.Explain(id) },
		Registerer: registry, Gatherer: registry, Log: slog.New(slog.DiscardHandler), Clock: clock.Real(), Replica: "r"})
	if err != nil {
		t.Fatal(err)
	}
	return g, f, router
}

// question asks the admin API.
func question(g *Gateway, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8081"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+g.cfg.Admin.Token)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	g.Admin().ServeHTTP(w, r)
	return w
}

// asked is an answer of POST /v1/route that must be one.
func asked(t *testing.T, g *Gateway, path, body string) (a routeAnswer) {
	t.Helper()
	w := question(g, "POST", path, body)
	if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != 200 || err != nil || a.Worker == "" || a.Explanation == nil || a.CostMicros <= 0 || a.TTFTMillis <= 0 {
		t.Fatalf("%s gave %d %s (%v)", body, w.Code, w.Body, err)
	}
	return a
}

const reserveBody = `{"model":"m","messages":[{"role":"user","content":"hi"}],"reserve":true}`

// A dry question books nothing; a reservation books until it is released.
func TestRouteIsAskedWithoutARequest(t *testing.T) {
	g, f, router := newAsked(t, Config{})
	defer g.Close()
	first, second := asked(t, g, "/v1/route", plainBody), asked(t, g, "/v1/route", plainBody)
	if first.Worker != second.Worker || first.Rank != kv.NoRank || first.ID == second.ID || first.Reservation != nil {
		t.Errorf("dry: %+v, then %+v", first, second)
	}
	if f.inFlight() != 0 || router.Stats().Requests != 0 {
		t.Errorf("a dry question left %d in flight, %d decisions", f.inFlight(), router.Stats().Requests)
	}
	booked := asked(t, g, "/v1/route", reserveBody)
	if booked.Worker != first.Worker || booked.Reservation == nil || booked.Reservation.ExpiresInSeconds != 30 || f.inFlight() != 1 {
		t.Errorf("reserved %+v, %d in flight, previewed %s", booked, f.inFlight(), first.Worker)
	}
	path := "/v1/route/" + booked.Reservation.ID
	if w := question(g, "DELETE", path, ""); w.Code != 204 || f.inFlight() != 0 {
		t.Errorf("released: %d %s, %d in flight", w.Code, w.Body, f.inFlight())
	}
	if w := question(g, "DELETE", path, ""); w.Code != 404 || !strings.Contains(w.Body.String(), "unknown_reservation") {
		t.Errorf("released twice: %d %s", w.Code, w.Body)
	}
	if s := router.Stats(); s.Requests != 1 || s.Ended[route.Cancelled] != 1 {
		t.Errorf("%+v", s)
	}
	if n := g.buffered.Load(); n != 0 {
		t.Errorf("%d bytes of bodies are still accounted for", n)
	}
}

// The kind of the request follows from its path, or else from its fields.
func TestRouteReadsTheKind(t *testing.T) {
	g, _, _ := newAsked(t, Config{})
	ids := strings.Repeat("1,", 99) + "1"
	for _, c := range []struct {
		path, body string
		exact      bool // the ids were read as a prompt
	}{
		{"/v1/route", `{"model":"m","prompt":[` + ids + `]}`, true},
		{"/v1/route", `{"model":"m","path":"/v1/completions","prompt":[` + ids + `]}`, true},
		{"/v1/route?path=/v1/completions", `{"model":"m","path":"/v1/chat/completions","prompt":[` + ids + `]}`, true},
		{"/v1/route", `{"model":"m","path":"/v1/chat/completions","messages":[{"role":"user","content":"hi"}]}`, false},
	} {
		e := asked(t, g, c.path, c.body).Explanation.(map[string]any)
		if exact := e["prompt_tokens_exact"] == true && e["prompt_tokens"] == 100.0; exact != c.exact {
			t.Errorf("%s %.60s: %v tokens, exact %v", c.path, c.body, e["prompt_tokens"], e["prompt_tokens_exact"])
		}
	}
}

func TestRouteErrors(t *testing.T) {
	g, f, _ := newAsked(t, Config{MaxBodyBytes: 4096, BufferBudgetBytes: 1 << 20})
	for _, c := range []struct {
		path, body string
		status     int
		code       string
	}{
		{"/v1/route", `{"model":"x","messages":[]}`, 404, "model_not_found"},
		{"/v1/route", `{"model":"m",`, 400, "invalid_json"},
		{"/v1/route", `{"model":"m","messages":[],"reserve":"yes"}`, 400, "invalid_value"},
		{"/v1/route", `{"model":"m","messages":[],"reserve":true,"reserve_seconds":0}`, 400, "invalid_value"},
		{"/v1/route", `{"model":"m","messages":[],"reserve":true,"reserve_seconds":1e9}`, 400, "invalid_value"},
		{"/v1/route?path=/metrics", `{"model":"m","messages":[]}`, 400, "invalid_value"},
		{"/v1/route", `{"model":"m","messages":["` + strings.Repeat("x", 5000) + `"]}`, 413, "request_too_large"},
	} {
		w := question(g, "POST", c.path, c.body)
		var e struct {
			Error struct{ Code, Type, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != c.status || e.Error.Code != c.code || e.Error.Message == "" {
			t.Errorf("%s %.80s gave %d %s", c.path, c.body, w.Code, w.Body)
		}
	}
	if f.inFlight() != 0 {
		t.Errorf("%d in flight", f.inFlight())
	}
	for _, m := range f.members {
		m.SetHealthy(false)
		m.Circuit.SetDraining(true)
	}
	for _, body := range []string{plainBody, reserveBody} {
		if w := question(g, "POST", "/v1/route", body); w.Code != 503 || !strings.Contains(w.Body.String(), "no_worker") {
			t.Errorf("without workers: %d %s", w.Code, w.Body)
		}
	}
}

func TestRouteWantsTheToken(t *testing.T) {
	g, f, _ := newAsked(t, Config{Admin: AdminConfig{Token: "s3cret"}})
	for _, c := range [][2]string{{"POST", "/v1/route"}, {"DELETE", "/v1/route/x"}} {
		r := httptest.NewRequest(c[0], c[1], strings.NewReader(reserveBody))
		w := httptest.NewRecorder()
		if g.Admin().ServeHTTP(w, r); w.Code != http.StatusUnauthorized || f.inFlight() != 0 {
			t.Errorf("%s %s without token: %d", c[0], c[1], w.Code)
		}
	}
}

// What nobody releases is released after its time, once.
func TestReservationsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f, router := newAsked(t, Config{})
		kept := asked(t, g, "/v1/route", reserveBody)
		short := asked(t, g, "/v1/route", strings.Replace(reserveBody, "true", `true,"reserve_seconds":5`, 1))
		if short.Reservation.ExpiresInSeconds != 5 || f.inFlight() != 2 {
			t.Errorf("%+v, %d in flight", short.Reservation, f.inFlight())
		}
		for _, c := range []struct {
			sleep time.Duration
			left  int
		}{{5*time.Second - 1, 2}, {1, 1}, {25*time.Second - 1, 1}, {1, 0}, {time.Hour, 0}} {
			time.Sleep(c.sleep)
			synctest.Wait()
			if n := f.inFlight(); n != c.left {
				t.Errorf("%d in flight, want %d", n, c.left)
			}
		}
		if w := question(g, "DELETE", "/v1/route/"+kept.Reservation.ID, ""); w.Code != 404 {
			t.Errorf("released after it expired: %d", w.Code)
		}
		asked(t, g, "/v1/route", reserveBody)
		g.Close()
		if w := question(g, "POST", "/v1/route", reserveBody); w.Code != 503 || f.inFlight() != 0 {
			t.Errorf("closed: %d, %d in flight", w.Code, f.inFlight())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := router.Stats(); s.Requests != 3 || s.Ended[route.Cancelled] != 3 {
			t.Errorf("%+v", s)
		}
		m := question(g, "GET", "/metrics", "").Body.String()
		for label, want := range map[string]float64{`ending="expired"`: 2, `ending="closed"`: 1} {
			if got := testkit.Metric(t, m, "rhizome_gateway_reservations_ended_total", label); got != want {
				t.Errorf("%s: %v, want %v", label, got, want)
			}
		}
		testkit.Idle(t, m, "rhizome_gateway_reservations", "rhizome_gateway_buffered_body_bytes")
	})
}

func TestReservationsAreBounded(t *testing.T) {
	g, f, _ := newAsked(t, Config{})
	for range maxReservations {
		if w := question(g, "POST", "/v1/route", reserveBody); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if w := question(g, "POST", "/v1/route", reserveBody); w.Code != 429 || !strings.Contains(w.Body.String(), "too_many_reservations") || f.inFlight() != maxReservations {
		t.Errorf("one more: %d %s, %d in flight", w.Code, w.Body, f.inFlight())
	}
	if _, err := g.reserved.reserve(route.Query{}, maxReservedBytes+1, time.Second); err == nil {
		t.Error("a body beyond the bound was taken")
	}
	g.Close()
	if f.inFlight() != 0 || g.reserved.bytes != 0 {
		t.Errorf("%d in flight, %d bytes", f.inFlight(), g.reserved.bytes)
	}
}
