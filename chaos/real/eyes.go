//go:build linux

package real

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rhizome-router/rhizome/mesh"
)

// eyes read one replica's admin port, from within its namespace.
type eyes struct{ client *http.Client }

// lookPatience is how long an answer of the admin port may take.
const lookPatience = 2 * time.Second

func newEyes(c *cluster, r *replica) *eyes {
	return &eyes{&http.Client{Timeout: lookPatience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return r.in.dial(ctx, network, adminAt)
		},
		MaxIdleConnsPerHost: 8,
	}}}
}

func (e *eyes) close() { e.client.CloseIdleConnections() }

// maxAnswer bounds what is read of one answer.
const maxAnswer = 16 << 20

func (e *eyes) ask(ctx context.Context, path string, read func(io.Reader) error) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+adminAt+path, nil)
	if err != nil {
		return err
	}
	a, err := e.client.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, a.Status)
	}
	return read(io.LimitReader(a.Body, maxAnswer))
}

func (e *eyes) get(ctx context.Context, path string, into any) error {
	return e.ask(ctx, path, func(r io.Reader) error { return json.NewDecoder(r).Decode(into) })
}

func (e *eyes) mesh(ctx context.Context) (s mesh.State, err error) {
	err = e.get(ctx, "/mesh", &s)
	return s, err
}

// metrics reads the sums of metrics over their labels, by name.
func (e *eyes) metrics(ctx context.Context) (sums map[string]float64, err error) {
	err = e.ask(ctx, "/metrics", func(r io.Reader) error { sums, err = sumMetrics(r); return err })
	return sums, err
}

func sumMetrics(r io.Reader) (map[string]float64, error) {
	sums := make(map[string]float64)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		// A value follows the last space; no timestamps are written.
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("read metric %q: %w", line, err)
		}
		name, _, _ := strings.Cut(line[:i], "{")
		sums[name] += v
	}
	return sums, lines.Err()
}

// dataTransport is how clients reach replicas: from the hub.
func (c *cluster) dataTransport() *http.Transport {
	return &http.Transport{
		DialContext:         c.net.hub.dial,
		MaxIdleConnsPerHost: 256, IdleConnTimeout: 5 * time.Second, DisableCompression: true,
	}
}

// ready reports whether a replica wants requests.
func ready(ctx context.Context, client *http.Client, r *replica) bool {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url()+"/readyz", nil)
	if err != nil {
		return false
	}
	a, err := client.Do(q)
	if err != nil {
		return false
	}
	a.Body.Close()
	return a.StatusCode == http.StatusOK
}
