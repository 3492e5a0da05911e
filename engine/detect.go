package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/engine/zmtp"
	"github.com/rhizome-router/rhizome/kv"
)

// Identity is what a worker says it is, and where its KV events are.
type Identity struct {
	// Engine is VLLM or SGLang. What isn't SGLang is taken for vLLM.
	Engine string
	// Version is the engine's, as it writes it; empty where it doesn't say.
	Version string
	// Events and Replay are rank 0's endpoints, as in Spec: those of the Spec
	// where it has them.
	Events, Replay string
	// Guessed says that nobody named Events: something publishes where engines
	// do by default, which may be another worker on the same host.
	Guessed bool
	// ApproximateReason is why the KV events can't be followed, and what would
	// help. Either it is empty or Events is.
	ApproximateReason string
	// Ranks is how many data-parallel ranks the worker shows; 0 where it
	// doesn't.
	Ranks int
	// BlockTokens is the number of tokens in a block; 0 where it doesn't say.
	BlockTokens int
	// Boot names this life of the server, BootKind says by what. With
	// BootDrawn it is 0, and whoever reads the events draws one.
	Boot     kv.Boot
	BootKind BootKind
}

// BootKind says what names a boot. It is fixed per worker: replicas that
// obtain the same kind obtain the same boot.
type BootKind uint8

// The kinds of boot.
const (
	BootDrawn     BootKind = iota // at random, by the one reader
	BootInstance                  // by the engine's instance id
	BootContainer                 // by container id and restart count
	BootStartTime                 // by the start time that the server tells
)

const (
	maxInfoBytes      = 4 << 20
	maxBlockTokens    = 1 << 20
	defaultEventsPort = 5557 // of vLLM's and of SGLang's documentation; replay is the next
	probeTimeout      = time.Second
)

// Detect asks the worker what it is: GET /server_info, which SGLang has, else
// /version and /metrics. An error means that it could not be asked, or is not
// the engine of its Spec; ask again later. What Detect found out last is kept
// for Scrape and Identity.
//
// Where nobody says where a vLLM worker publishes its events, the default port
// is tried: once in a boot, for at most 2 s.
func (w *Worker) Detect(ctx context.Context) (Identity, error) {
	id, err := w.detect(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("find out what engine the worker is: %w", err)
	}
	w.identity.Store(&id)
	return id, nil
}

// Identity returns what Detect found out last; ok is false before it did.
func (w *Worker) Identity() (id Identity, ok bool) {
	if p := w.identity.Load(); p != nil {
		return *p, true
	}
	return Identity{}, false
}

// SameProcess reports whether two workers that said what they are turned out to
// be one process under two names: the same boot, at the same address and port.
// Neither alone says so: replicas of one deployment may be given one instance
// id or start at the same moment, and many hosts may be behind one address.
func SameProcess(a, b *Worker) bool {
	x, asked := a.Identity()
	y, too := b.Identity()
	if !asked || !too || x.BootKind == BootDrawn || x.BootKind != y.BootKind || x.Boot != y.Boot {
		return false
	}
	here, known := a.Peer()
	there, also := b.Peer()
	return known && also && here == there
}

// engine returns the engine as far as it is known.
func (w *Worker) engine() string {
	if id := w.identity.Load(); id != nil {
		return id.Engine
	}
	return w.Spec.Engine
}

func (w *Worker) detect(ctx context.Context) (Identity, error) {
	if w.Spec.Engine == VLLM {
		return w.vllmIdentity(ctx)
	}
	info, err := w.serverInfo(ctx)
	switch {
	case err != nil:
		return Identity{}, err
	case info != nil:
		return w.sglangIdentity(info), nil
	case w.Spec.Engine == SGLang && w.Spec.Events != "": // it may ask for a key
		return Identity{Engine: SGLang, Events: w.Spec.Events, Replay: w.Spec.Replay}, nil
	case w.Spec.Engine == SGLang:
		return Identity{}, fmt.Errorf("GET /server_info on worker %s gives nothing like SGLang's: name its events=tcp://HOST:PORT, or leave out engine=%s",
			w.Spec.URL, SGLang)
	}
	return w.vllmIdentity(ctx)
}

func (w *Worker) vllmIdentity(ctx context.Context) (Identity, error) {
	id := Identity{Engine: VLLM}
	body, err := w.get(ctx, "/version", maxInfoBytes)
	if err == nil {
		var answer struct{ Version string }
		if json.Unmarshal(body, &answer) == nil {
			id.Version = answer.Version
		}
	} else if !answered(err) {
		return Identity{}, err
	}
	t, err := w.metrics(ctx)
	if err != nil && !answered(err) {
		return Identity{}, err
	}
	for _, r := range t.Ranks {
		if r.BlockTokens.Known {
			id.BlockTokens = within(r.BlockTokens.Value, maxBlockTokens)
		}
		if r != (RankTelemetry{}) {
			id.Ranks++
		}
	}
	if s := t.ProcessStartSeconds; s.Known {
		id.setBoot(BootStartTime, strconv.FormatFloat(s.Value, 'g', -1, 64))
	}
	w.findEvents(ctx, &id)
	return id, nil
}

// findEvents fills in where a vLLM worker publishes.
func (w *Worker) findEvents(ctx context.Context, id *Identity) {
	if w.Spec.Events != "" {
		id.Events, id.Replay = w.Spec.Events, w.Spec.Replay
		return
	}
	if last := w.identity.Load(); last != nil && last.BootKind != BootDrawn && last.BootKind == id.BootKind && last.Boot == id.Boot {
		id.Events, id.Replay, id.Guessed, id.ApproximateReason = last.Events, last.Replay, last.Guessed, last.ApproximateReason
		return
	}
	events := w.endpoint(w.eventsPort)
	if err := w.probe(ctx, events, zmtp.SUB); err != nil {
		id.ApproximateReason = fmt.Sprintf(`no KV events at %s (%v): start vLLM with --kv-events-config '{"enable_kv_cache_events":true,`+
			`"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}', or name the endpoint: events=tcp://HOST:PORT`, events, err)
		return
	}
	id.Events, id.Guessed = events, true
	// With more ranks, the next port is the next rank's.
	if replay := w.endpoint(w.eventsPort + 1); max(w.Spec.Ranks, id.Ranks) == 1 && w.probe(ctx, replay, zmtp.DEALER) == nil {
		id.Replay = replay
	}
}

// endpoint returns a port of the worker's host.
func (w *Worker) endpoint(port int) string {
	return "tcp://" + net.JoinHostPort(w.base.Hostname(), strconv.Itoa(port))
}

// probe reports whether a ZeroMQ peer for a socket of type t listens at an
// endpoint.
func (w *Worker) probe(ctx context.Context, endpoint string, t zmtp.SocketType) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := zmtp.Dial(ctx, endpoint, zmtp.Options{Type: t, HandshakeTimeout: probeTimeout, Dialer: w.guard.socketDialer(endpoint)})
	if err != nil {
		return err
	}
	return conn.Close()
}

// setBoot names the boot by a text that no other life of the server has.
func (id *Identity) setBoot(kind BootKind, text string) {
	id.Boot, id.BootKind = kv.Boot(xxh3.HashString(strconv.Itoa(int(kind))+":"+text)), kind
}

// answered reports whether an error says that the worker answered, only not
// with what was asked for. A server error may be over soon, so it doesn't
// count.
func answered(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.code < 500
	}
	return errors.Is(err, errBody)
}

// within returns a count that a worker told, and 0 for one that can't be.
func within(x float64, most int) int {
	if n := int(x); x >= 1 && x <= float64(most) && float64(n) == x {
		return n
	}
	return 0
}
