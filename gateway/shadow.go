package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/route"
)

// ShadowConfig compares this router's decisions with those of another one that
// is asked the same and decides nothing.
type ShadowConfig struct {
	// URL is asked by POST with the request's body. It answers with the worker
	// it would take: in the header X-Gateway-Destination-Endpoint (host:port) or
	// as {"worker": "http://host:port"}. Default: nobody is asked.
	URL string `yaml:"url,omitempty"`
	// Share is the share of requests that are asked about, 0 to 1; default 1.
	Share float64 `yaml:"share,omitempty"`
	// Timeout bounds one question; default 1 s.
	Timeout time.Duration `yaml:"timeout,omitempty"`
	// MaxInFlight bounds the questions at one time; more are not asked.
	// Default 16.
	MaxInFlight int `yaml:"max_in_flight,omitempty"`
	// MaxBodyBytes bounds the body that is sent along; longer requests are not
	// asked about. Default 1 MiB.
	MaxBodyBytes int `yaml:"max_body_bytes,omitempty"`
}

func (c ShadowConfig) withDefaults() ShadowConfig {
	setDefault(&c.Share, 1)
	setDefault(&c.Timeout, time.Second)
	setDefault(&c.MaxInFlight, 16)
	setDefault(&c.MaxBodyBytes, 1<<20)
	return c
}

func (c ShadowConfig) validate() error {
	if c.URL == "" {
		return nil
	}
	var errs []error
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		errs = append(errs, errors.New("shadow.url: want http:// or https://, a host and a path, without user or password"))
	}
	if !(c.Share >= 0 && c.Share <= 1) {
		errs = append(errs, fmt.Errorf("shadow.share is %v: want 0 to 1", c.Share))
	}
	if c.Timeout < 0 || c.MaxInFlight < 0 || c.MaxBodyBytes < 0 {
		errs = append(errs, errors.New("shadow: timeout, max_in_flight and max_body_bytes must be above 0"))
	}
	return errors.Join(errs...)
}

// shadow asks another router what it would have done.
type shadow struct {
	metrics   *metrics
	transport *http.Transport
	ctx       context.Context // of all questions
	stop      context.CancelFunc

	mu       sync.Mutex
	inFlight int
	asking   sync.WaitGroup
	closed   bool
}

func newShadow(m *metrics) *shadow {
	ctx, stop := context.WithCancel(context.Background())
	return &shadow{metrics: m, ctx: ctx, stop: stop,
		transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, DisableCompression: true}}
}

// close ends open questions and waits for them.
func (s *shadow) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.asking.Wait()
	s.transport.CloseIdleConnections()
}

// Labels of how a comparison went.
const (
	shadowSame    = "same"
	shadowOther   = "other"
	shadowFailed  = "failed"
	shadowSkipped = "skipped"
)

// askShadow asks about x, for which d was decided, and doesn't wait.
func (g *Gateway) askShadow(x *exchange, d *route.Decision) {
	cfg := g.cfg.Shadow
	if cfg.URL == "" || float64(xxh3.HashString(x.id)>>11)/(1<<53) >= cfg.Share {
		return
	}
	s := g.shadow
	if x.body.rest != nil || len(x.body.received) > cfg.MaxBodyBytes || !s.enter(cfg.MaxInFlight) {
		g.metrics.shadow.WithLabelValues(shadowSkipped).Inc()
		return
	}
	body, header := bytes.Clone(x.body.received), x.header // the body's memory goes back to the pool
	ours := d.Worker.Spec.URL
	s.asking.Go(func() {
		defer s.leave()
		theirs, err := s.ask(cfg, body, header)
		how := shadowOther
		switch {
		case err != nil:
			how = shadowFailed
			g.deps.Log.Debug("shadow gave no answer", "id", x.id, "err", err)
		case endpointOf(theirs) == endpointOf(ours):
			how = shadowSame
		}
		g.metrics.shadow.WithLabelValues(how).Inc()
	})
}

func (s *shadow) enter(most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.inFlight >= most {
		return false
	}
	s.inFlight++
	return true
}

func (s *shadow) leave() {
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
}

// maxShadowBytes bounds an answer.
const maxShadowBytes = 64 << 10

// ask returns the worker that the other router would take.
func (s *shadow) ask(cfg ShadowConfig, body []byte, header http.Header) (string, error) {
	ctx, cancel := context.WithTimeout(s.ctx, cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cfg.URL, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	for _, name := range []string{"Content-Type", "Content-Encoding", headerRequestID, headerWorkflow} {
		if v, ok := header[name]; ok {
			req.Header[name] = v
		}
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxShadowBytes))
	if err != nil {
		return "", err
	}
	if e := resp.Header.Get("X-Gateway-Destination-Endpoint"); e != "" {
		return e, nil
	}
	var named struct {
		Worker string `json:"worker"`
	}
	if err := json.Unmarshal(answer, &named); err != nil || named.Worker == "" {
		return "", fmt.Errorf("status %d names no worker", resp.StatusCode)
	}
	return named.Worker, nil
}

// endpointOf returns the host and port of a URL or of an endpoint.
func endpointOf(s string) string {
	if _, after, ok := strings.Cut(s, "://"); ok {
		s = after
	}
	s, _, _ = strings.Cut(s, "/")
	s, _, _ = strings.Cut(s, ",") // of several the first is the choice
	return strings.ToLower(strings.TrimSpace(s))
}
