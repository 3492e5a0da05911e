package engine

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/engine/zmtp"
)

// The engines.
const (
	VLLM   = "vllm"
	SGLang = "sglang"
)

// MaxRanks is the most data-parallel ranks a worker may have.
const MaxRanks = 1024

// Spec is one worker as an operator writes it, on the command line or in YAML.
// ParseSpec and Canonical return it checked and in canonical form.
type Spec struct {
	// URL is where requests go: http or https, a host, a port, nothing more.
	URL string `yaml:"url"`
	// ID names the worker in every replica. Empty: its URL does. Give one where
	// a worker keeps its cache but not its address.
	ID string `yaml:"id,omitempty"`
	// Engine is what runs there: vllm or sglang. Empty: the worker is asked.
	Engine string `yaml:"engine,omitempty"`
	// Events is where rank 0 publishes KV events, "tcp://host:port"; rank r
	// does at port+r. With the host "*" the engine dials in to that port.
	// Empty: the worker is asked, and if it doesn't publish any, its cache's
	// content is guessed from what was sent there.
	Events string `yaml:"events,omitempty"`
	// Replay is where rank 0 replays past events, rank r at port+r. Empty: a
	// lost event makes the index of this worker start anew.
	Replay string `yaml:"replay,omitempty"`
	// Ranks is the number of data-parallel ranks, 1 to 1024. Default 1.
	Ranks int `yaml:"dp,omitempty"`
	// Model is the model's name in block keys. Empty: the first that the
	// worker lists.
	Model string `yaml:"model,omitempty"`
	// Preset names the engine constants to assume until they are measured.
	Preset string `yaml:"preset,omitempty"`
	// Admit is what KV the engine wants free before it takes a request on:
	// whole_prompt, per_chunk or sglang_ratio. Empty: as its engine does by
	// default.
	Admit string `yaml:"admit,omitempty"`
	// Load is what the engine does with cache hits on lower tiers: always (load
	// them), threshold:N (from N tokens on), or min (whatever is faster, if the
	// engine was made to decide). Default always.
	Load string `yaml:"load,omitempty"`
	// TokensPerStep is how many tokens a sequence puts out in a step of the
	// engine, on average: more than 1 under speculative decoding. Default 1.
	TokensPerStep float64 `yaml:"tokens_per_step,omitempty"`
	// H2C makes requests go by cleartext HTTP/2 instead of HTTP/1.1. Default
	// false: engines' own servers speak HTTP/1.1.
	H2C bool `yaml:"h2c,omitempty"`
	// Token is sent to the worker as a bearer token, where it wants one (vLLM's
	// and SGLang's --api-key), in place of the caller's. A line of text can't
	// hold it. Default: none.
	Token string `yaml:"token,omitempty" config:"secret"`
}

// Name is what names the worker in every replica: its ID, or else its URL.
func (s Spec) Name() string { return cmp.Or(s.ID, s.URL) }

// ParseSpec reads "URL[,key=value…]", with the keys id, engine, events, replay,
// dp (the number of ranks), model, preset, admit, load, tokens_per_step and
// h2c; for example
// "http://h:8000,events=tcp://h:5557,replay=tcp://h:5558".
func ParseSpec(s string) (Spec, error) {
	shown := withoutUser(s)
	parts := strings.Split(s, ",")
	spec := Spec{URL: parts[0]}
	seen := make(map[string]bool)
	for _, part := range parts[1:] {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			if strings.Contains(part, "@") {
				part = "***" // a piece of a password, with a comma in it
			}
			return Spec{}, fmt.Errorf("worker %q: %q is no key=value", shown, part)
		}
		if seen[key] {
			return Spec{}, fmt.Errorf("worker %q: %s is given twice", shown, key)
		}
		seen[key] = true
		if err := spec.set(key, value); err != nil {
			return Spec{}, fmt.Errorf("worker %q: %w", shown, err)
		}
	}
	spec, err := spec.Canonical()
	if err != nil {
		return Spec{}, fmt.Errorf("worker %q: %w", shown, err)
	}
	return spec, nil
}

// withoutUser returns a text without what stands between :// and @: a message
// must not show a password.
func withoutUser(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 {
		return s
	}
	return scheme + "://***" + rest[at:]
}

// UnmarshalText reads a spec as ParseSpec does.
func (s *Spec) UnmarshalText(text []byte) error {
	spec, err := ParseSpec(string(text))
	if err != nil {
		return err
	}
	*s = spec
	return nil
}

func (s *Spec) set(key, value string) error {
	switch key {
	case "id":
		s.ID = value
	case "engine":
		s.Engine = value
	case "events":
		s.Events = value
	case "replay":
		s.Replay = value
	case "dp":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("dp=%s: want a number from 1 to %d", value, MaxRanks)
		}
		s.Ranks = n
	case "model":
		s.Model = value
	case "preset":
		s.Preset = value
	case "admit":
		s.Admit = value
	case "load":
		s.Load = value
	case "tokens_per_step":
		x, err := strconv.ParseFloat(value, 64)
		if err != nil || x == 0 {
			return fmt.Errorf("tokens_per_step=%s: want a number from 1 to %d", value, maxTokensPerStep)
		}
		s.TokensPerStep = x
	case "h2c":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("h2c=%s: want true or false", value)
		}
		s.H2C = on
	default:
		return fmt.Errorf("unknown key %q (one of id, engine, events, replay, dp, model, preset, admit, load, tokens_per_step, h2c)", key)
	}
	return nil
}

// Canonical checks a spec and returns it with its defaults filled in and its
// URL in canonical form: lower-case host as written, explicit port.
func (s Spec) Canonical() (Spec, error) {
	var err error
	if s.URL, err = canonicalURL(s.URL); err != nil {
		return Spec{}, err
	}
	s.Ranks = cmp.Or(s.Ranks, 1)
	if s.Engine != "" && s.Engine != VLLM && s.Engine != SGLang {
		return Spec{}, fmt.Errorf("engine %q is not supported (one of %s, %s, or none to find out)", s.Engine, VLLM, SGLang)
	}
	if s.Ranks < 1 || s.Ranks > MaxRanks {
		return Spec{}, fmt.Errorf("%d data-parallel ranks: want 1 to %d", s.Ranks, MaxRanks)
	}
	if err := s.checkPhysics(); err != nil {
		return Spec{}, err
	}
	for _, v := range [...]string{s.ID, s.Model, s.Preset} {
		if strings.ContainsAny(v, ",\n\r") {
			return Spec{}, fmt.Errorf("%q must not hold a comma or a line break", v)
		}
	}
	if s.H2C && !strings.HasPrefix(s.URL, "http://") {
		return Spec{}, fmt.Errorf("h2c is HTTP/2 in clear: it wants an http:// URL, not %s", s.URL)
	}
	if strings.ContainsFunc(s.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return Spec{}, fmt.Errorf("the token of %s must be printable ASCII without spaces", s.URL)
	}
	return s, s.checkSockets()
}

// maxTokensPerStep is more than any speculative decoding puts out.
const maxTokensPerStep = 64

// checkPhysics says what is wrong with what a spec tells of the engine's way to
// work.
func (s Spec) checkPhysics() error {
	if _, err := cost.ParseAdmission(s.Admit); s.Admit != "" && err != nil {
		return fmt.Errorf("admit: %w", err)
	}
	if _, _, err := cost.ParseLoadPolicy(s.Load); s.Load != "" && err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if x := s.TokensPerStep; x != 0 && !(x >= 1 && x <= maxTokensPerStep) {
		return fmt.Errorf("tokens_per_step is %v: want a number from 1 to %d", x, maxTokensPerStep)
	}
	return nil
}

func (s Spec) checkSockets() error {
	if s.Events == "" {
		if s.Replay != "" {
			return fmt.Errorf("replay=%s needs events= as well", s.Replay)
		}
		return nil
	}
	if _, err := rankEndpoint(s.Events, s.Ranks-1); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if s.Replay == "" {
		return nil
	}
	if _, err := rankEndpoint(s.Replay, s.Ranks-1); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if strings.HasPrefix(s.Replay, "tcp://*:") {
		return fmt.Errorf("replay=%s: replay is always dialled, name a host", s.Replay)
	}
	eh, ep, _ := splitEndpoint(s.Events)
	rh, rp, _ := splitEndpoint(s.Replay)
	if d := max(ep-rp, rp-ep); eh == rh && d < s.Ranks {
		return fmt.Errorf("the ports of events and replay are %d apart, but %d ranks count up from each: put them at least %d apart", d, s.Ranks, s.Ranks)
	}
	return nil
}

// String returns the spec as ParseSpec reads it, without what is default and
// without the token.
func (s Spec) String() string {
	var b strings.Builder
	b.WriteString(s.URL)
	pair := func(key, value string) {
		if value != "" {
			b.WriteString("," + key + "=" + value)
		}
	}
	pair("id", s.ID)
	pair("engine", s.Engine)
	pair("events", s.Events)
	pair("replay", s.Replay)
	if s.Ranks > 1 {
		pair("dp", strconv.Itoa(s.Ranks))
	}
	pair("model", s.Model)
	pair("preset", s.Preset)
	pair("admit", s.Admit)
	pair("load", s.Load)
	if s.TokensPerStep != 0 {
		pair("tokens_per_step", strconv.FormatFloat(s.TokensPerStep, 'g', -1, 64))
	}
	if s.H2C {
		pair("h2c", "true")
	}
	return b.String()
}

// canonicalURL returns scheme://host:port with a lower-case host, as written
// otherwise: a name is never resolved.
func canonicalURL(raw string) (string, error) {
	if raw == "" {
		return "", fmt.Errorf("no URL: want http://host:port")
	}
	u, err := url.Parse(raw)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the rest of it quotes the URL
		}
		return "", fmt.Errorf("URL %q: %w", withoutUser(raw), err)
	}
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("URL %q: want http:// or https://", withoutUser(raw))
	case u.User != nil:
		return "", fmt.Errorf("the URL of %s must not hold a user or a password", u.Hostname())
	case u.Hostname() == "" || strings.ContainsFunc(u.Hostname(), notInHost):
		return "", fmt.Errorf("URL %q has no usable host", raw)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		return "", fmt.Errorf("URL %q: want scheme, host and port alone, without path, query or fragment", raw)
	case port == "" && u.Scheme == "http":
		port = "80"
	case port == "":
		port = "443"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("URL %q: port %s is out of range", raw, port)
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port), nil
}

// notInHost reports whether a letter can't be in a host name or address as we
// take it; other alphabets are written in punycode.
func notInHost(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._:", c))
}

// rankEndpoint returns the endpoint of a rank: its base's port plus the rank.
func rankEndpoint(base string, rank int) (string, error) {
	host, port, err := splitEndpoint(base)
	if err != nil {
		return "", err
	}
	if port+rank > 65535 {
		return "", fmt.Errorf("endpoint %q: the port of rank %d would be %d", base, rank, port+rank)
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port+rank)), nil
}

// splitEndpoint returns host, "" for every address, and port.
func splitEndpoint(endpoint string) (host string, port int, err error) {
	addr, err := zmtp.ParseEndpoint(endpoint)
	if err != nil {
		return "", 0, err
	}
	host, digits, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || strings.Contains(endpoint, ",") {
		return "", 0, fmt.Errorf("endpoint %q: want tcp://host:port with a port from 1 to 65535", endpoint)
	}
	return host, int(n), nil
}
