package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rhizome-router/rhizome/fleet"
)

// adminFlags say which replica's admin port to ask.
type adminFlags struct {
	Admin string `help:"Admin address of the replica, HOST:PORT or a URL." default:"http://127.0.0.1:8081" env:"RHIZOME_ADMIN"`
	Token string `help:"Admin token, where the replica wants one." env:"RHIZOME_ADMIN_TOKEN"`
}

// errNotFound says that the replica has no such thing.
var errNotFound = errors.New("not found")

// maxAdminBytes bounds what is read of an answer.
const maxAdminBytes = 64 << 20

// get asks the admin port for a path and returns the body of its answer.
func (f *adminFlags) get(ctx context.Context, path ...string) ([]byte, error) {
	return f.ask(ctx, http.MethodGet, "", path...)
}

// ask sends a request to the admin port and returns the body of its answer.
func (f *adminFlags) ask(ctx context.Context, method, send string, path ...string) ([]byte, error) {
	address := f.Admin
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("--admin %q is no address such as 127.0.0.1:8081 or http://127.0.0.1:8081", f.Admin)
	}
	request, err := http.NewRequestWithContext(ctx, method, base.JoinPath(path...).String(), strings.NewReader(send))
	if err != nil {
		return nil, err
	}
	if f.Token != "" {
		request.Header.Set("Authorization", "Bearer "+f.Token)
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the replica at %s: %w", f.Admin, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAdminBytes))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer of %s: %w", f.Admin, err)
	case response.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", request.URL, errNotFound)
	case response.StatusCode >= 300:
		return nil, fmt.Errorf("%s answered %s: %s", request.URL, response.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// ctlCommand groups what one asks a running replica.
type ctlCommand struct {
	Index   ctlIndexCommand   `cmd:"" help:"Show what the index holds of each worker, and how that is known."`
	Workers ctlWorkersCommand `cmd:"" help:"Show, add, drain and remove workers."`
	Leases  ctlLeasesCommand  `cmd:"" help:"Show which worker each workflow keeps, and which replicas agree on it."`
	Mesh    ctlMeshCommand    `cmd:"" help:"Show the other replicas, and how this one stands with them."`
}

type ctlIndexCommand struct {
	JSON bool `help:"Print the JSON as served."`
	adminFlags
}

func (c *ctlIndexCommand) Run(sh *shell) error {
	body, err := c.get(sh.ctx, "index")
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := sh.stdout.Write(body)
		return err
	}
	var s fleet.IndexState
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("%s answered no index state: %w", c.Admin, err)
	}
	return writeIndexState(sh.stdout, &s)
}

func writeIndexState(w io.Writer, s *fleet.IndexState) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "worker\tfrom\tstate\tblock\thbm\tcpu\tother\tnext batch\tsilent\tunkeyed\trefused\tbad\tgaps\treplays\tresets\t")
	for _, c := range s.Caches {
		name := strings.TrimPrefix(c.Worker, "http://")
		if c.Rank >= 0 {
			name = fmt.Sprintf("%s/%d", name, c.Rank)
		}
		state := "down"
		switch {
		case c.Source == "sent":
			state = "-"
		case c.Stalled:
			state = "stalled"
		case len(c.Truncated) > 0:
			state = "truncated"
		case c.Live:
			state = "live"
		}
		silent := "-"
		if c.SinceBatchSeconds >= 0 {
			silent = fmt.Sprintf("%.1fs", c.SinceBatchSeconds)
		}
		held := c.HeldTokens
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, c.Source, state, c.BlockTokens,
			held["hbm"], held["cpu"], held["disk"]+held["remote"]+held["other"], c.Next, silent,
			c.Unkeyed, c.Refused, c.BadEvents, c.Feed.Gaps, c.Feed.ReplayRounds, c.Resets)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	x := s.Index
	_, err := fmt.Fprintf(w, "\n%d blocks, held %d times, in %.1f of %.0f MiB; %d refused, %d promised; text chunks of %d workers\n",
		x.Keys, x.Holders, mib(x.Bytes), mib(x.MaxBytes), x.Refused, x.Promises, s.Sent.ActiveSlots)
	return err
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
