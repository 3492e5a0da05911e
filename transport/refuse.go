package transport

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// logInterval is the least time between two log lines about the same thing.
const logInterval = 10 * time.Second

// refusals counts peers that were turned away and logs one line per kind and
// logInterval, however many strangers knock.
type refusals struct {
	log     *slog.Logger
	metrics *metrics

	mu   sync.Mutex
	said map[string]*said // by kind; the kinds are a closed set
}

type said struct {
	at     time.Time
	silent int // happened since without a line
}

func newRefusals(log *slog.Logger, m *metrics) *refusals {
	return &refusals{log: log, metrics: m, said: make(map[string]*said)}
}

// add counts and logs a peer turned away.
func (r *refusals) add(remote string, why *refusal) {
	r.metrics.refused.WithLabelValues(why.reason).Inc()
	r.line(why.reason, "peer refused", "addr", remote, "reason", why.reason, "detail", why.detail)
}

// dialFailed logs a dial that did not work out.
func (r *refusals) dialFailed(addr string, err error) {
	var why *refusal
	if errors.As(err, &why) {
		r.add(addr, why)
		return
	}
	r.line("dial", "peer can't be reached", "addr", addr, "error", err)
}

// oldCertificates logs that certificates could not be read again.
func (r *refusals) oldCertificates(err error) {
	r.line("certificates", "mesh certificates are not read again; those read before stay in force", "error", err)
}

// badFrame counts and logs a stream that was given up.
func (r *refusals) badFrame(p Peer, err *FrameError) {
	r.metrics.badFrames.WithLabelValues(err.Reason).Inc()
	r.line(err.Reason, "stream given up", "peer", p.Boot, "addr", p.Addr, "error", err)
}

func (r *refusals) line(kind, msg string, args ...any) {
	r.mu.Lock()
	s := r.said[kind]
	if s == nil {
		s = &said{}
		r.said[kind] = s
	}
	if !s.at.IsZero() && time.Since(s.at) < logInterval {
		s.silent++
		r.mu.Unlock()
		return
	}
	if s.silent > 0 {
		args = append(args, "unsaid", s.silent)
	}
	s.at, s.silent = time.Now(), 0
	r.mu.Unlock()
	r.log.Warn(msg, args...)
}
