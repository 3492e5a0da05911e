package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/rhizome-router/rhizome/engine/sglang"
)

// serverInfo is what is read of SGLang's GET /server_info: the arguments of
// the server, and more.
type serverInfo struct {
	Version  string
	PageSize float64 `json:"page_size"`
	DCPSize  float64 `json:"dcp_size"` // each block is so many pages
	DPSize   float64 `json:"dp_size"`
	// KVEvents says where events are published; since May 2026.
	KVEvents *struct {
		Publisher string
		Host      string  `json:"endpoint_host"`
		PortBase  float64 `json:"endpoint_port_base"`
		BlockSize float64 `json:"block_size"`
		DPSize    float64 `json:"dp_size"`
	} `json:"kv_events"`
	// KVEventsConfig is the argument --kv-events-config, as it was given.
	KVEventsConfig string          `json:"kv_events_config"`
	InstanceID     json.RawMessage `json:"instance_id"`
	StartTime      json.RawMessage `json:"start_time"`
}

// eventsConfig is what is read of --kv-events-config.
type eventsConfig struct {
	Publisher string
	Endpoint  string
	Replay    string `json:"replay_endpoint"`
}

const sglangEventsFix = `start SGLang with --page-size 16 --kv-events-config '{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}'`

// serverInfo returns what SGLang says of itself, and nil for a worker that
// answers otherwise.
func (w *Worker) serverInfo(ctx context.Context) (*serverInfo, error) {
	for _, path := range [...]string{"/server_info", "/get_server_info"} { // the second up to mid-2025
		body, err := w.get(ctx, path, maxInfoBytes)
		if answered(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		info, err := parseServerInfo(body)
		if err != nil {
			return nil, fmt.Errorf("GET %s on worker %s: %w", path, w.Spec.URL, err)
		}
		if info == nil {
			continue
		}
		return info, nil
	}
	return nil, nil
}

// parseServerInfo returns nil for a page that isn't SGLang's: vLLM's
// development mode has one of that name, too.
func parseServerInfo(body []byte) (*serverInfo, error) {
	var keys map[string]json.RawMessage
	if json.Unmarshal(body, &keys) != nil || keys["internal_states"] == nil && keys["page_size"] == nil && keys["kv_events"] == nil {
		return nil, nil
	}
	info := new(serverInfo)
	if err := json.Unmarshal(body, info); err != nil {
		return nil, err
	}
	return info, nil
}

func (w *Worker) sglangIdentity(info *serverInfo) Identity {
	id := Identity{Engine: SGLang, Version: info.Version, Ranks: within(info.DPSize, MaxRanks)}
	page := info.PageSize
	if e := info.KVEvents; e != nil {
		if n := within(e.DPSize, MaxRanks); n > 0 {
			id.Ranks = n
		}
		if e.BlockSize > 0 {
			page = e.BlockSize
		}
	}
	id.BlockTokens = within(page*max(1, info.DCPSize), maxBlockTokens)
	if text, ok := scalar(info.InstanceID); ok {
		id.setBoot(BootInstance, text)
	} else if text, ok := scalar(info.StartTime); ok {
		id.setBoot(BootStartTime, text)
	}
	if !sglang.Chained(info.Version) {
		id.ApproximateReason = fmt.Sprintf("the block hashes of SGLang %q don't cover what precedes a block: upgrade to 0.5.6 or newer", info.Version)
		return id
	}
	if w.Spec.Events != "" {
		id.Events, id.Replay = w.Spec.Events, w.Spec.Replay
		return id
	}
	events, replay, err := w.sglangEvents(info)
	if err == nil {
		err = Spec{Events: events, Replay: replay, Ranks: max(w.Spec.Ranks, id.Ranks)}.checkSockets()
	}
	if err != nil {
		id.ApproximateReason = err.Error() + ", or name the endpoint: events=tcp://HOST:PORT"
		return id
	}
	id.Events, id.Replay = events, replay
	return id
}

// sglangEvents returns where rank 0 publishes and replays, if it does.
func (w *Worker) sglangEvents(info *serverInfo) (events, replay string, err error) {
	var config eventsConfig
	if info.KVEventsConfig != "" {
		if err := json.Unmarshal([]byte(info.KVEventsConfig), &config); err != nil {
			return "", "", fmt.Errorf("SGLang's --kv-events-config can't be read: %w", err)
		}
	}
	if e := info.KVEvents; e != nil && e.Publisher == "zmq" {
		port := within(e.PortBase, 65535)
		if port == 0 {
			return "", "", fmt.Errorf("SGLang publishes KV events at port %v", e.PortBase)
		}
		host := e.Host
		if anyHost(host) {
			host = w.base.Hostname()
		} else if loopback(host) && !loopback(w.base.Hostname()) {
			return "", "", fmt.Errorf("SGLang publishes KV events on its own host only, at %s: %s", host, sglangEventsFix)
		}
		events = "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
	} else if config.Publisher == "zmq" {
		if events, err = w.bound(config.Endpoint); err != nil {
			return "", "", err
		}
	} else {
		return "", "", fmt.Errorf("SGLang publishes no KV events: %s", sglangEventsFix)
	}
	if config.Replay != "" {
		if replay, err = w.bound(config.Replay); err != nil {
			return "", "", err
		}
	}
	return events, replay, nil
}

// bound returns where to reach an endpoint that the engine binds.
func (w *Worker) bound(endpoint string) (string, error) {
	host, port, err := splitEndpoint(endpoint)
	if err != nil {
		return "", fmt.Errorf("SGLang's KV events can't be reached: %w: %s", err, sglangEventsFix)
	}
	if !anyHost(host) {
		return "", fmt.Errorf("SGLang dials %s with its KV events: %s", endpoint, sglangEventsFix)
	}
	return w.endpoint(port), nil
}

// anyHost reports whether a host stands for all addresses of its machine.
func anyHost(host string) bool {
	return slices.Contains([]string{"", "*", "0.0.0.0", "::", "[::]"}, host)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// scalar returns the text of a JSON string or number.
func scalar(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, text != ""
	}
	var number json.Number
	if json.Unmarshal(raw, &number) == nil {
		return number.String(), number != ""
	}
	return "", false
}
