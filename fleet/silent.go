package fleet

import (
	"log/slog"
	"time"

	"github.com/rhizome-router/rhizome/clock"
)

// eventsWatch notices members whose KV events don't come although the worker is
// said to publish them: routing would go on, and just never find a prefix. Each
// is told of once, and once more when its events come.
type eventsWatch map[*Member]*missing

// missing is since when a member's events don't come.
type missing struct {
	since clock.Instant
	told  bool
}

// look logs what has changed of members; grace is how long a socket may take to
// be connected.
func (e eventsWatch) look(now clock.Instant, grace time.Duration, members []*Member, log *slog.Logger) {
	for _, m := range members {
		why := m.silent(now)
		was := e[m]
		switch {
		case why == "" && was == nil:
		case why == "":
			delete(e, m)
			if was.told {
				log.Info("the worker's KV events come again", "worker", m.Worker.Spec.URL, "rank", m.Target.Rank)
			}
		case was == nil:
			e[m] = &missing{since: now}
		case !was.told && (now.Sub(was.since) >= grace || m.Stalled(now)):
			was.told = true
			log.Warn("the worker's KV events don't come: its prefixes are not, or only half, believed",
				"worker", m.Worker.Spec.URL, "rank", m.Target.Rank, "why", why)
		}
	}
}

// silent says why a member's KV events don't come; empty when they do, or when
// there are none to be expected.
func (m *Member) silent(now clock.Instant) string {
	c := m.Cache()
	switch {
	case c.Known != ByEvents:
		return ""
	case !c.Live:
		return "their socket does not answer: see events= of the worker, and the engine's --kv-events-config"
	case m.Stalled(now):
		return "requests computed blocks of which no event told: is it another port, topic or worker?"
	}
	return ""
}
