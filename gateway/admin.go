package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Admin returns the handler of the admin listener: /metrics, /explain, /explain/{id},
// /workers, /index, /discovery, /mesh, /mesh/streams, /leases, /config, /healthz and /debug/pprof/, what adds,
// drains and removes workers (POST /workers, POST and DELETE /workers/{id}/drain,
// DELETE /workers/{id}), and decisions without a request to a
// worker (POST /v1/route and DELETE /v1/route/{id}). Where the config has a token,
// every path but /healthz wants it as a bearer token.
func (g *Gateway) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.deps.Gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /explain", g.recent)
	mux.HandleFunc("GET /explain/{id}", g.explain)
	mux.HandleFunc("GET /workers", func(w http.ResponseWriter, _ *http.Request) { adminList(w, g.deps.Workers) })
	mux.HandleFunc("GET /index", func(w http.ResponseWriter, _ *http.Request) { adminList(w, g.deps.Index) })
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { adminList(w, g.deps.Config) })
	mux.HandleFunc("GET /discovery", func(w http.ResponseWriter, _ *http.Request) { adminList(w, g.deps.Discovery) })
	mux.HandleFunc("GET /leases", g.leases)
	mux.HandleFunc("GET /mesh", func(w http.ResponseWriter, _ *http.Request) { adminList(w, g.deps.Mesh) })
	mux.HandleFunc("GET /mesh/streams", func(w http.ResponseWriter, _ *http.Request) { adminList(w, g.deps.Streams) })
	mux.HandleFunc("POST /workers", g.addWorker)
	mux.HandleFunc("DELETE /workers/{id}", g.removeWorker)
	mux.HandleFunc("POST /workers/{id}/drain", func(w http.ResponseWriter, r *http.Request) { g.setDraining(w, r, true) })
	mux.HandleFunc("DELETE /workers/{id}/drain", func(w http.ResponseWriter, r *http.Request) { g.setDraining(w, r, false) })
	mux.HandleFunc("POST /v1/route", g.askRoute)
	mux.HandleFunc("DELETE /v1/route/{id}", g.endReservation)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { adminJSON(w, status{"ok"}) })
	open.Handle("/", requireToken(g.cfg.Admin.Token, mux))
	if g.cfg.Admin.Token == "" {
		return requireLocalName(http.NewCrossOriginProtection().Handler(open))
	}
	return open
}

// requireLocalName lets only requests through that name a loopback host. Where
// no token is asked for, a page in a browser on this machine could otherwise
// get in under a name of its own that leads here (DNS rebinding).
func requireLocalName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !isLoopback(strings.Trim(host, "[]")) {
			failure{status: http.StatusMisdirectedRequest, kind: invalidRequest, code: "wrong_host",
				say: "without gateway.admin.token the admin API is there under a loopback address or localhost alone"}.write(w, openAI)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// requireToken lets only requests with the bearer token through; an empty
// token lets all through, which Validate allows on loopback only.
func requireToken(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given)) // equal lengths, so that the compare takes constant time
		if !strings.EqualFold(scheme, "bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			failure{status: http.StatusUnauthorized, kind: "authentication_error", code: "invalid_token",
				say: "the admin API wants its bearer token"}.write(w, openAI)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// maxRecent bounds what GET /explain lists, recentByDefault is without n.
const (
	maxRecent       = 1000
	recentByDefault = 20
)

// recent answers GET /explain?n=N: the last decisions, newest first.
func (g *Gateway) recent(w http.ResponseWriter, r *http.Request) {
	n := recentByDefault
	if said := r.URL.Query().Get("n"); said != "" {
		var err error
		if n, err = strconv.Atoi(said); err != nil || n < 1 || n > maxRecent {
			failure{status: http.StatusBadRequest, kind: invalidRequest, code: "invalid_number",
				say: fmt.Sprintf("n is how many decisions to list, 1 to %d", maxRecent)}.write(w, openAI)
			return
		}
	}
	adminList(w, func() any {
		if g.deps.Recent == nil {
			return []struct{}{}
		}
		return g.deps.Recent(n)
	})
}

// maxLeases bounds what GET /leases lists, which is as many without limit.
const maxLeases = 1000

// leases answers GET /leases?limit=N: how replicas agree, and the leases used
// last. With after=KEY they come by key, those after KEY, so that the last key of
// each answer leads to the next, until one has none; after= begins.
func (g *Gateway) leases(w http.ResponseWriter, r *http.Request) {
	q, limit := r.URL.Query(), maxLeases
	if said := q.Get("limit"); said != "" {
		var err error
		if limit, err = strconv.Atoi(said); err != nil || limit < 1 || limit > maxLeases {
			failure{status: http.StatusBadRequest, kind: invalidRequest, code: "invalid_number",
				say: fmt.Sprintf("limit is how many leases to list, 1 to %d", maxLeases)}.write(w, openAI)
			return
		}
	}
	var list func() any
	if g.deps.Leases != nil {
		list = func() any { return g.deps.Leases(limit, q.Get("after"), q.Has("after")) }
	}
	adminList(w, list)
}

// explain answers GET /explain/{id}.
func (g *Gateway) explain(w http.ResponseWriter, r *http.Request) {
	if g.deps.Explain != nil {
		if e, ok := g.deps.Explain(r.PathValue("id")); ok {
			adminJSON(w, e)
			return
		}
	}
	failure{status: http.StatusNotFound, kind: invalidRequest, code: "unknown_request_id",
		say: "no decision is known for this request id: too long ago, made by another replica, or never made"}.write(w, openAI)
}

// adminList answers with what get returns; an empty list where get is nil.
func adminList(w http.ResponseWriter, get func() any) {
	var list any = []struct{}{}
	if get != nil {
		list = get()
	}
	adminJSON(w, list)
}

func adminJSON(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		failure{status: http.StatusInternalServerError, kind: serverError, code: "internal",
			say: "the answer can't be encoded: " + err.Error()}.write(w, openAI)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(body, '\n')) // a client that is gone needs no answer
}
