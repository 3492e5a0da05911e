package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// Config says how the front door behaves. A zero value means the default
// given with each field; a negative duration switches that limit off.
type Config struct {
	// Listen is the data listener's address; default ":8080". It takes requests
	// whose header is at most 256 KiB.
	Listen string `yaml:"listen" config:"fixed"`
	// TLS serves the data listener by TLS; default: plain HTTP.
	TLS TLSConfig `yaml:"tls,omitempty" config:"fixed"`
	// Admin is the admin listener.
	Admin AdminConfig `yaml:"admin"`
	// DrainDelay is how long the data listener still takes connections after
	// the end was asked for, while /readyz says no already: the time that
	// balancers need to notice. Default none.
	DrainDelay time.Duration `yaml:"drain_delay,omitempty" config:"fixed"`

	// MaxBodyBytes bounds one request body, as received and as decoded;
	// default 512 MiB. A larger one is answered with 413.
	MaxBodyBytes int64 `yaml:"max_body_bytes"`
	// BufferBudgetBytes bounds all request bodies held in memory together;
	// default 1 GiB. Beyond it requests are answered with 503.
	BufferBudgetBytes int64 `yaml:"buffer_budget_bytes"`

	// ReplayBytes is how much of a request body is held in memory, so that it
	// can be sent to another worker; default 64 MiB. What is longer goes on to
	// the worker as it arrives, and is not tried again once that has begun.
	// Compressed bodies are held whole.
	ReplayBytes int64 `yaml:"replay_bytes"`

	// MaxAttempts is how many distinct targets a request is tried on when
	// workers fail before they answer; default 3, 1 means no retry.
	MaxAttempts int `yaml:"max_attempts"`
	// RetryShare is how many retries there may be per request on average,
	// 0 to 1; default 0.2.
	RetryShare float64 `yaml:"retry_share"`

	// MaxPlaces bounds the responses and conversations of which it is known which
	// worker holds them; the one that was used longest ago is forgotten first.
	// Default 65,536.
	MaxPlaces int `yaml:"max_places" config:"fixed"`

	// FirstByteTimeout is how long a streaming response may take to its first
	// body byte; default 10 min. Other responses may take as long as they take.
	FirstByteTimeout time.Duration `yaml:"first_byte_timeout" config:"off"`
	// IdleTimeout is how long a response that has begun may pause; default 2 min.
	IdleTimeout time.Duration `yaml:"idle_timeout" config:"off"`
	// UploadTimeout is how long a client may pause while it sends a body;
	// default 30 s.
	UploadTimeout time.Duration `yaml:"upload_timeout" config:"off"`
	// UploadMinBytesPerSecond is how fast a body must arrive on the whole; default
	// 1024, -1 is no limit. One that falls 30 s behind is answered with 408. The
	// time that its worker takes to read does not count.
	UploadMinBytesPerSecond int64 `yaml:"upload_min_bytes_per_second"`
	// WriteTimeout is how long a client may take to accept one piece of a
	// response; default 2 min.
	WriteTimeout time.Duration `yaml:"write_timeout" config:"off"`

	// ForwardAuthorization lets the caller's credentials (Authorization,
	// X-Api-Key, Api-Key, Cookie) through to workers.
	ForwardAuthorization bool `yaml:"forward_authorization"`
	// TrustHints believes the hint headers (x-agent-*, x-expected-output-tokens,
	// x-priority, x-rhizome-pin) and the hints in bodies (nvext.agent_hints,
	// cache_control) of every caller. Without it the headers are dropped and the
	// bodies' hints pass unread, save from callers whose key has trust: hints.
	TrustHints bool `yaml:"trust_hints"`
	// HideDecision leaves out the x-rhizome-* response headers.
	HideDecision bool `yaml:"hide_decision"`

	// Keys are the callers that the data port knows. With none, anyone may call.
	Keys []KeyConfig `yaml:"keys,omitempty"`
	// CORS lets browsers call the data port; default: not.
	CORS CORSConfig `yaml:"cors,omitempty"`
	// Models says what is special about models, by the name that requests use.
	// A model named here stays known, and listed, while no worker serves it.
	// The name "*" stands for all models; it can have rewrites alone.
	Models map[string]ModelConfig `yaml:"models,omitempty"`
	// Shadow compares decisions with another router's; default: not.
	Shadow ShadowConfig `yaml:"shadow,omitempty"`
	// Trace sends spans of requests to a collector; default: not.
	Trace TraceConfig `yaml:"trace,omitempty" config:"fixed"`
}

// TraceConfig says where spans go.
type TraceConfig struct {
	// Endpoint is a collector's URL for OTLP over HTTP, such as
	// http://collector:4318/v1/traces. Default: no spans.
	Endpoint string `yaml:"endpoint,omitempty"`
	// SampleShare is the share of requests without a traced caller that are
	// traced, 0 to 1; default 0.01. A caller's own choice is followed.
	SampleShare float64 `yaml:"sample_share,omitempty"`
}

// AdminConfig is the admin listener's part of [Config].
type AdminConfig struct {
	// Listen is the address; default "127.0.0.1:8081".
	Listen string `yaml:"listen" config:"fixed"`
	// Token must be sent as a bearer token with every admin request but
	// /healthz. It may be empty only when Listen is a loopback address; then the
	// port answers under the names of loopback alone, and to no browser's page of
	// another origin.
	Token string `yaml:"token" config:"secret"`
}

// WithDefaults returns c with every zero value replaced by its default.
func (c Config) WithDefaults() Config {
	setDefault(&c.Listen, ":8080")
	setDefault(&c.Admin.Listen, "127.0.0.1:8081")
	setDefault(&c.MaxBodyBytes, 512<<20)
	setDefault(&c.BufferBudgetBytes, 1<<30)
	setDefault(&c.ReplayBytes, 64<<20)
	setDefault(&c.MaxAttempts, 3)
	setDefault(&c.MaxPlaces, defaultMaxPlaces)
	setDefault(&c.RetryShare, 0.2)
	setDefault(&c.FirstByteTimeout, 10*time.Minute)
	setDefault(&c.IdleTimeout, 2*time.Minute)
	setDefault(&c.UploadTimeout, 30*time.Second)
	setDefault(&c.UploadMinBytesPerSecond, 1<<10)
	setDefault(&c.WriteTimeout, 2*time.Minute)
	c.Shadow = c.Shadow.withDefaults()
	setDefault(&c.Trace.SampleShare, 0.01)
	setDefault(&c.CORS.MaxAgeSeconds, 600)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate says what in c, after WithDefaults, can't work; each problem names
// its key.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.MaxBodyBytes < 0 {
		bad("max_body_bytes is %d: want a number of bytes above 0", c.MaxBodyBytes)
	}
	if c.BufferBudgetBytes < c.MaxBodyBytes {
		bad("buffer_budget_bytes is %d: want at least max_body_bytes (%d), or the largest bodies never pass",
			c.BufferBudgetBytes, c.MaxBodyBytes)
	}
	if c.ReplayBytes < minReplayBytes {
		bad("replay_bytes is %d: want at least %d", c.ReplayBytes, minReplayBytes)
	}
	if c.MaxAttempts < 1 || c.MaxAttempts > 16 {
		bad("max_attempts is %d: want 1 to 16", c.MaxAttempts)
	}
	if !(c.RetryShare >= 0 && c.RetryShare <= 1) {
		bad("retry_share is %v: want 0 to 1", c.RetryShare)
	}
	if c.MaxPlaces < 1 {
		bad("max_places is %d: want 1 or more", c.MaxPlaces)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("listen: %w", err)
	}
	host, _, err := net.SplitHostPort(c.Admin.Listen)
	if err != nil {
		bad("admin.listen: %w", err)
	} else if c.Admin.Token == "" && !isLoopback(host) {
		bad("admin.listen is %s, which others can reach: set admin.token, or listen on 127.0.0.1", c.Admin.Listen)
	}
	if c.DrainDelay < 0 {
		bad("drain_delay is %v: want 0 or more", c.DrainDelay)
	}
	if s := c.Trace.SampleShare; !(s >= 0 && s <= 1) {
		bad("trace.sample_share is %v: want 0 to 1", s)
	}
	if u, err := url.Parse(c.Trace.Endpoint); c.Trace.Endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
		bad("trace.endpoint: want http:// or https://, a host and a path, without user or password")
	}
	errs = append(errs, c.TLS.validate(), validateKeys(c.Keys), c.CORS.validate(), validateModels(c.Models), c.Shadow.validate())
	return errors.Join(errs...)
}

// minReplayBytes is the least that is read of a body before its worker is
// chosen.
const minReplayBytes = 64 << 10

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
