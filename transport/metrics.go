package transport

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the transport tells about itself. All labels are of closed
// sets.
type metrics struct {
	connections *prometheus.GaugeVec   // plane
	dials       *prometheus.CounterVec // plane, result
	closed      *prometheus.CounterVec // plane, why
	refused     *prometheus.CounterVec // reason
	datagrams   *prometheus.CounterVec // direction
	dropped     *prometheus.CounterVec // where
	badFrames   *prometheus.CounterVec // reason
	bytes       *prometheus.CounterVec // plane, direction

	streamBytes [planes][2]prometheus.Counter // bytes by plane and direction, looked up once

	reg prometheus.Registerer
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rhizome_transport_" + name, Help: help}, labels)
	}
	m := &metrics{
		reg: reg,
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rhizome_transport_connections",
			Help: "Connections with peers, by plane: gossip, raft or delta."}, []string{"plane"}),
		dials:     counter("dials_total", "Dials of peers, by plane and result: ok or failed.", "plane", "result"),
		closed:    counter("connections_closed_total", "Connections that ended, by plane and why: peer, silent, reset (it restarted), unused, dropped, replaced, broken, closing or failed.", "plane", "why"),
		refused:   counter("refused_total", "Peers turned away, by reason.", "reason"),
		datagrams: counter("datagrams_total", "Gossip packets, by direction: sent or received.", "direction"),
		dropped:   counter("dropped_total", "What was dropped at a full queue or for want of a connection, by where: send_queue, receive_queue, unreachable, oversized or streams.", "where"),
		badFrames: counter("bad_frames_total", "Streams given up for a frame that is oversized or corrupted.", "reason"),
		bytes:     counter("stream_bytes_total", "Bytes on streams, by plane and direction: sent or received.", "plane", "direction"),
	}
	for p := range planes {
		m.connections.WithLabelValues(p.String())
		for i, d := range []string{"sent", "received"} {
			m.streamBytes[p][i] = m.bytes.WithLabelValues(p.String(), d)
		}
	}
	for _, r := range refusalReasons {
		m.refused.WithLabelValues(r)
	}
	var errs []error
	for _, c := range m.all() {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register the transport's metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.connections, m.dials, m.closed, m.refused, m.datagrams, m.dropped, m.badFrames, m.bytes}
}

// unregister takes the metrics back, so that another endpoint may have them.
func (m *metrics) unregister() error {
	for _, c := range m.all() {
		if !m.reg.Unregister(c) {
			return errors.New("take back the transport's metrics: they are not registered")
		}
	}
	return nil
}

func (m *metrics) wrote(p Plane, n int) { m.streamBytes[p][0].Add(float64(n)) }
func (m *metrics) read(p Plane, n int)  { m.streamBytes[p][1].Add(float64(n)) }
