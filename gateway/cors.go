package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// CORSConfig lets browsers' pages of other origins call the data port.
type CORSConfig struct {
	// Origins are the pages' origins, such as https://chat.example.com; "*" is
	// any. Default none: browsers are not answered to.
	Origins []string `yaml:"origins,omitempty"`
	// MaxAgeSeconds is how long a browser may remember a permission; default 600.
	MaxAgeSeconds int `yaml:"max_age_seconds,omitempty"`
}

func (c CORSConfig) validate() error {
	var errs []error
	for _, o := range c.Origins {
		u, err := url.Parse(o)
		if o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil) {
			errs = append(errs, fmt.Errorf("cors.origins: %q is no origin: want scheme://host[:port] or *", o))
		}
	}
	if c.MaxAgeSeconds < 0 {
		errs = append(errs, fmt.Errorf("cors.max_age_seconds is %d: want 1 or more", c.MaxAgeSeconds))
	}
	return errors.Join(errs...)
}

const corsPrefix = "Access-Control-"

// cors tells a browser that its page may read the answer, whatever the answer
// is, and answers its question before the request (the preflight) itself: that
// comes without credentials, so before any of them is asked for.
func (g *Gateway) cors(x *exchange) (answered bool) {
	origin := x.r.Header.Get("Origin")
	if origin == "" || len(g.cfg.CORS.Origins) == 0 {
		return false
	}
	h := x.w.Header()
	h.Add("Vary", "Origin")
	allowed := slices.Contains(g.cfg.CORS.Origins, "*") || slices.Contains(g.cfg.CORS.Origins, origin)
	if allowed {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", strings.Join([]string{headerRequestID, headerWorker, headerReplica, headerDecision, "Retry-After"}, ", "))
	}
	if x.r.Method != http.MethodOptions || x.r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	if allowed {
		h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
		if asked := x.r.Header.Get("Access-Control-Request-Headers"); asked != "" && len(asked) <= 1<<10 {
			h.Set("Access-Control-Allow-Headers", asked)
			h.Add("Vary", "Access-Control-Request-Headers")
		}
		h.Set("Access-Control-Max-Age", strconv.Itoa(g.cfg.CORS.MaxAgeSeconds))
	}
	x.status = http.StatusNoContent
	x.w.WriteHeader(x.status)
	return true
}
