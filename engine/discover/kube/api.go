package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/engine/discover"
)

// Limits of what is read of the API.
const (
	pageItems    = 500      // in one page of a list
	maxPageBytes = 64 << 20 // of one page
	maxEvent     = 4 << 20  // bytes of one event of a watch
	maxErrorText = 4 << 10
	maxToken     = 64 << 10
	listTimeout  = 30 * time.Second // for one page
)

// errGone says that the API no longer knows the version that was asked for.
var errGone = errors.New("410 Gone: the version asked for is too old")

// statusError is an answer of the API that is not success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.code, e.text) }

// api is the way to one cluster's API. One goroutine uses it.
type api struct {
	cfg    discover.KubernetesConfig
	client *http.Client
	ca     []byte // what client trusts
}

// connect makes a client that trusts what the file of certificates holds now.
func (a *api) connect() error {
	secure := strings.HasPrefix(a.cfg.Server, "https:")
	var ca []byte
	if secure {
		var err error
		if ca, err = os.ReadFile(a.cfg.CAFile); err != nil {
			return fmt.Errorf("read the certificates of the Kubernetes API: %w", err)
		}
	}
	if a.client != nil && bytes.Equal(ca, a.ca) {
		return nil
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true,
		// A connection that died without a word is noticed, and not used again.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	if secure {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return fmt.Errorf("the certificates of the Kubernetes API: %s holds none", a.cfg.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	a.close()
	a.ca = ca
	a.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return nil
}

func (a *api) close() {
	if a.client != nil {
		a.client.CloseIdleConnections()
	}
}

// get asks for a path. The token is read anew each time, since the kubelet
// replaces it, and sent by TLS alone.
func (a *api) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.cfg.Server, "/")+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "rhizome")
	if len(a.ca) > 0 {
		token, err := os.ReadFile(a.cfg.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token for the Kubernetes API: %w", err)
		}
		if len(token) > maxToken {
			return nil, fmt.Errorf("the token for the Kubernetes API: %s is no token", a.cfg.TokenFile)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the Kubernetes API: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorText)) // what there is of it
	var said struct{ Message string }
	if json.Unmarshal(text, &said) == nil && said.Message != "" {
		text = []byte(said.Message)
	}
	if resp.StatusCode == http.StatusGone {
		return nil, errGone
	}
	return nil, fmt.Errorf("GET %s of the Kubernetes API: %w", path, &statusError{resp.StatusCode, strings.TrimSpace(string(text))})
}

// page is one page of a list.
type page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

// list returns all objects and the version they are of. since is a version that
// was seen already: the list will be no older, though it may come from the
// cache of another server of the API. Empty: the newest there is.
func (a *api) list(ctx context.Context, path, selector, since string) ([]object, string, error) {
	var all []object
	query := url.Values{"labelSelector": {selector}, "limit": {fmt.Sprint(pageItems)}}
	if since != "" {
		query.Set("resourceVersion", since)
		query.Set("resourceVersionMatch", "NotOlderThan")
	}
	for {
		p, err := a.page(ctx, path, query)
		if err != nil {
			return nil, "", err
		}
		all = append(all, p.Items...)
		if p.Metadata.Continue == "" {
			return all, p.Metadata.ResourceVersion, nil
		}
		if len(all) >= discover.MaxWorkers {
			return nil, "", fmt.Errorf("the selector %q picks more than %d objects: narrow it", selector, discover.MaxWorkers)
		}
		query = url.Values{"labelSelector": {selector}, "limit": {fmt.Sprint(pageItems)}, "continue": {p.Metadata.Continue}}
	}
}

func (a *api) page(ctx context.Context, path string, query url.Values) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var p page
	body, err := a.get(ctx, path, query)
	if err != nil {
		return p, err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxPageBytes)).Decode(&p); err != nil {
		return p, fmt.Errorf("read a list of the Kubernetes API: %w", err)
	}
	return p, nil
}

// event is one change that a watch tells.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// watch calls on for each change after a version, until the watch ends, which
// is no error, or on returns one. It takes no longer than the given time.
func (a *api) watch(ctx context.Context, path, selector, since string, most time.Duration, on func(event) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	body, err := a.get(ctx, path, url.Values{
		"labelSelector": {selector}, "watch": {"true"}, "allowWatchBookmarks": {"true"},
		"resourceVersion": {since}, "timeoutSeconds": {fmt.Sprint(int(most.Seconds()) + 1)},
	})
	if err != nil {
		return err
	}
	defer body.Close()
	limited := &limitedReader{r: body}
	decoder := json.NewDecoder(limited)
	for {
		limited.left = maxEvent
		var e event
		if err := decoder.Decode(&e); err != nil {
			if errors.Is(err, errLargeEvent) {
				return err
			}
			return nil // ended, in time or not: a list follows
		}
		if e.Type == "ERROR" {
			if e.Object.Code == http.StatusGone {
				return errGone
			}
			return fmt.Errorf("the watch of the Kubernetes API ended: %w", &statusError{e.Object.Code, e.Object.Message})
		}
		if err := on(e); err != nil {
			return err
		}
	}
}

var errLargeEvent = fmt.Errorf("an event of the Kubernetes API is longer than %d bytes", maxEvent)

// limitedReader reads at most left bytes.
type limitedReader struct {
	r    io.Reader
	left int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLargeEvent
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
