package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// KeyConfig is one caller's key and what goes with it.
type KeyConfig struct {
	// Name says whose key it is, in logs and messages to operators; required
	// and unique. It is no secret.
	Name string `yaml:"name"`
	// SHA256 is the key's SHA-256 in hex; the key itself is nowhere stored.
	// `printf %s "$KEY" | sha256sum` prints it.
	SHA256 string `yaml:"sha256" config:"secret"`
	// Tenant is whom the caller belongs to; limits are kept per tenant.
	// Default: the name.
	Tenant string `yaml:"tenant,omitempty"`
	// Trust is "hints" when the caller's hint headers are believed and passed
	// on, and it may name its tenant and pin requests to workers; else empty.
	Trust string `yaml:"trust,omitempty"`
	// Models are those that the caller may use, by the names in its requests;
	// others are answered with 403. Default: all.
	Models []string `yaml:"models,omitempty"`
	// MaxInFlight bounds the tenant's requests at one time; beyond it they are
	// answered with 429. 0: no limit. Of several keys of a tenant the first
	// that sets a limit counts.
	MaxInFlight int `yaml:"max_in_flight,omitempty"`
	// RequestsPerSecond bounds how many requests the tenant may begin per
	// second, after a burst of as many as one second allows (at least 1).
	// 0: no limit.
	RequestsPerSecond float64 `yaml:"requests_per_second,omitempty"`
	// Weight is the standing of the caller's requests in the router's queue
	// against others' of the same priority: twice the weight stands like half the
	// work. More than 0, at most 1000. Default 1.
	Weight float64 `yaml:"weight,omitempty"`
}

// maxWeight bounds KeyConfig.Weight.
const maxWeight = 1000

// trustHints is the value of KeyConfig.Trust.
const trustHints = "hints"

func validateKeys(keys []KeyConfig) error {
	var errs []error
	names, hashes := make(map[string]bool), make(map[string]bool)
	for i, k := range keys {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("keys[%d]: %w", i, fmt.Errorf(format, args...)))
		}
		hash := strings.ToLower(k.SHA256)
		switch raw, err := hex.DecodeString(hash); {
		case err != nil || len(raw) != sha256.Size:
			bad("sha256 must be 64 hex digits, as sha256sum prints them")
		case hashes[hash]:
			bad("two keys have the same sha256")
		}
		switch {
		case k.Name == "":
			bad("name is missing")
		case names[k.Name]:
			bad("two keys have the name %q", k.Name)
		}
		names[k.Name], hashes[hash] = true, true
		if k.Trust != "" && k.Trust != trustHints {
			bad("trust is %q: want %q or nothing", k.Trust, trustHints)
		}
		if k.MaxInFlight < 0 {
			bad("max_in_flight is %d: want 0 (no limit) or more", k.MaxInFlight)
		}
		if !(k.Weight >= 0 && k.Weight <= maxWeight) {
			bad("weight is %v: want more than 0, at most %d", k.Weight, maxWeight)
		}
		if !(k.RequestsPerSecond >= 0 && k.RequestsPerSecond <= 1e6) {
			bad("requests_per_second is %v: want 0 (no limit) to 1000000", k.RequestsPerSecond)
		}
	}
	return errors.Join(errs...)
}

// caller is who sent a request, as far as that matters.
type caller struct {
	name   string
	tenant string
	trust  bool // its hints are believed
	models []string
	weight float64  // in the router's queue; 0: 1
	limit  *limiter // nil: none
}

// callers finds the caller of a key, by the key's SHA-256.
type callers map[[sha256.Size]byte]*caller

// newCallers prepares the keys of a valid config. Tenants keep the limiters
// they have, so that requests in flight stay counted.
func newCallers(keys []KeyConfig, limits *limiters) callers {
	all := make(callers, len(keys))
	rates := make(map[string]rate)
	for _, k := range keys {
		t := tenantOf(k)
		r := rates[t]
		if r.maxInFlight == 0 {
			r.maxInFlight = k.MaxInFlight
		}
		if r.perSecond == 0 {
			r.perSecond = k.RequestsPerSecond
		}
		rates[t] = r
	}
	for _, k := range keys {
		var hash [sha256.Size]byte
		_, _ = hex.Decode(hash[:], []byte(strings.ToLower(k.SHA256))) // validated
		t := tenantOf(k)
		all[hash] = &caller{name: k.Name, tenant: t, trust: k.Trust == trustHints, models: k.Models, weight: k.Weight, limit: limits.of(t, rates[t])}
	}
	return all
}

func tenantOf(k KeyConfig) string {
	if k.Tenant != "" {
		return k.Tenant
	}
	return k.Name
}

// authenticate finds out who sent x. Without configured keys everyone is the
// same nameless caller.
func (g *Gateway) authenticate(x *exchange) error {
	var who caller
	if len(g.callers) > 0 {
		key := keyOf(x.r.Header)
		if key == "" {
			return errNoKey
		}
		// Keys are compared by their hashes: how long that takes says nothing of
		// how much of a key is right.
		known, ok := g.callers[sha256.Sum256([]byte(key))]
		if !ok {
			return errBadKey
		}
		who = *known
	}
	who.trust = who.trust || g.cfg.TrustHints
	if tenant := boundedHint(x.r.Header, headerTenant); who.trust && tenant != "" {
		who.tenant = tenant // for which a trusted caller speaks; the limits are its own
	}
	x.caller = &who
	return nil
}

// keyOf returns the key that a request presents, as OpenAI's, Anthropic's and
// Azure's clients do; "" for none.
func keyOf(h http.Header) string {
	if scheme, key, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(key)
	}
	for _, name := range []string{"X-Api-Key", "Api-Key"} {
		if key := h.Get(name); key != "" {
			return key
		}
	}
	return ""
}

// mayUse reports whether the caller may use a model.
func (c *caller) mayUse(model string) bool {
	return len(c.models) == 0 || slices.Contains(c.models, model)
}
