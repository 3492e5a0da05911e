package route

import (
	"math"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// peering is what a router tells the other replicas and has heard of them. It
// is nil for a router that is alone. But for mesh it is guarded by the router's
// lock, which is never taken within Do of the mesh.
type peering struct {
	mesh *mesh.Node

	touched  []*fleet.Member // whose requests came, went or got their first token
	isIn     map[*fleet.Member]bool
	told     map[*fleet.Member]fleet.Share // what is on our page, without nothings
	at       int                           // whose numbers are looked at next
	due      []MemberShare                 // scratch
	mean     mean                          // of how long requests take
	toldMean time.Duration
	counted  clock.Instant // when the peers were
}

const (
	// peerDelay is how long what a peer tells takes to be known here: it looks
	// every 5 ms, and the mesh sends as often.
	peerDelay = 10 * time.Millisecond
	// countEvery is how often the peers are counted.
	countEvery = 250 * time.Millisecond
	// lookRound is in how many calls of Tell every member is looked at once
	// though nothing happened there, at least leastLooks in each.
	lookRound, leastLooks = 20, 8
)

func newPeering(node *mesh.Node) *peering {
	if node == nil {
		return nil
	}
	return &peering{mesh: node, isIn: make(map[*fleet.Member]bool), told: make(map[*fleet.Member]fleet.Share)}
}

// mean is an average that forgets.
type mean struct{ n, seconds float64 }

// meanReach is about how many requests back a mean reaches.
const meanReach = 200

func (m *mean) observe(d time.Duration) {
	m.n = min(m.n+1, meanReach)
	m.seconds += (d.Seconds() - m.seconds) / m.n
}

// touch notes that peers should be told of a member. It needs r.mu.
func (p *peering) touch(m *fleet.Member) {
	if p != nil && !p.isIn[m] {
		p.isIn[m] = true
		p.touched = append(p.touched, m)
	}
}

// ended notes how long a request took. It needs r.mu.
func (p *peering) ended(d time.Duration) {
	if p != nil {
		p.mean.observe(d)
	}
}

// Tell puts on the mesh's pages what changed since the last call and peers
// should know. A router that is alone does nothing. It is called every few
// milliseconds, by one goroutine at a time.
func (r *Router) Tell() {
	p := r.peering
	if p == nil {
		return
	}
	view := r.deps.Fleet.View()
	r.mu.Lock()
	now := r.deps.Clock.Now()
	p.gather(r, now, view.Members)
	mean, news := p.meanRequest()
	r.mu.Unlock()

	peers := -1
	p.mesh.Do(func(now clock.Instant, c *core.Core) {
		for i := range p.due {
			fleet.PutShare(now, c, p.due[i].Target, &p.due[i].Share)
		}
		if news {
			fleet.PutMeanRequest(now, c, mean)
		}
		if now.Sub(p.counted) >= countEvery {
			p.counted, peers = now, 0
			for _, peer := range c.Peers(now) {
				if peer.Alive {
					peers++
				}
			}
		}
	})
	if peers >= 0 {
		r.SetPeers(peers, peerDelay)
	}
}

// gather collects as p.due the shares that peers should be told: of members at
// which something happened, and of some of the others if time has changed them.
// It needs r.mu.
func (p *peering) gather(r *Router, now clock.Instant, members []*fleet.Member) {
	p.due = p.due[:0]
	for _, m := range p.touched {
		p.tell(m, r.share(now, m))
	}
	for range min(len(members), max(leastLooks, len(members)/lookRound)) {
		p.at = (p.at + 1) % len(members)
		m := members[p.at]
		if old, told := p.told[m]; told && !p.isIn[m] {
			if s := r.share(now, m); s.Differs(&old) {
				p.tell(m, s)
			}
		}
	}
	p.touched = p.touched[:0]
	clear(p.isIn)
}

func (p *peering) tell(m *fleet.Member, s fleet.Share) {
	p.due = append(p.due, MemberShare{m.Target, s})
	if s == (fleet.Share{}) {
		delete(p.told, m)
	} else {
		p.told[m] = s
	}
}

// meanRequest returns how long requests take, and whether peers should be told:
// it changed by a fourth.
func (p *peering) meanRequest() (d time.Duration, news bool) {
	d = time.Duration(p.mean.seconds * float64(time.Second))
	if d <= 0 || math.Abs(d.Seconds()-p.toldMean.Seconds()) < p.toldMean.Seconds()/4 {
		return 0, false
	}
	p.toldMean = d
	return d, true
}
