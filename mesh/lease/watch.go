package lease

import (
	"slices"

	"github.com/rhizome-router/rhizome/clock"
)

// watch keeps what a view needs to know of the past.
type watch struct {
	members  []string
	changed  clock.Instant
	leader   clock.Instant // when a leader of the own cluster was heard last
	most     int
	cluster  Cluster
	lastSeen []server
	yieldTo  Cluster // of the last leader
}

// look brings the watch up to date and completes v with what it knows.
func (w *watch) look(now clock.Instant, v *view) {
	members := []string{}
	for i := range v.others {
		if v.others[i].alive {
			members = append(members, v.others[i].name)
		}
	}
	if !slices.Equal(members, w.members) {
		w.members, w.changed = members, now
	}
	if v.own.Cluster != w.cluster {
		w.cluster, w.leader, w.lastSeen, w.yieldTo = v.own.Cluster, now, nil, 0
	}
	if v.own.Leads {
		w.leader, w.lastSeen, w.most = now, v.own.Servers, v.alive()
	}
	for o := range v.leaders {
		if o.Cluster == v.own.Cluster && w.leader <= now.Add(-o.age) {
			w.leader, w.lastSeen, w.most, w.yieldTo = now.Add(-o.age), o.Servers, v.alive(), o.YieldTo
		}
	}
	v.steady, v.leaderless, v.servers, v.most, v.yieldTo = now.Sub(w.changed), now.Sub(w.leader), w.lastSeen, w.most, w.yieldTo
}
