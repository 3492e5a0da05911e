package gateway

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// GET /leases passes on how many leases are asked for and after which.
func TestAdminPagesLeases(t *testing.T) {
	type asked struct {
		Limit int
		After string
		ByKey bool
	}
	r := prometheus.NewRegistry()
	g, err := New(Config{}, Deps{Leases: func(limit int, after string, byKey bool) any { return asked{limit, after, byKey} }, Registerer: r, Gatherer: r, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for query, want := range map[string]asked{
		"": {1000, "", false}, "?limit=2": {2, "", false}, "?after=": {1000, "", true}, "?limit=1000&after=0a": {1000, "0a", true},
		"?limit=0": {}, "?limit=1001": {}, "?limit=x": {},
	} {
		w := httptest.NewRecorder()
		g.Admin().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/leases"+query, nil))
		var got asked
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
		} else if w.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d", query, w.Code)
		}
		if got != want {
			t.Errorf("%q asks for %+v, want %+v", query, got, want)
		}
	}
}
