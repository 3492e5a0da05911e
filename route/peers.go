package route

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/index"
	"github.com/rhizome-router/rhizome/kv"
	"github.com/rhizome-router/rhizome/mesh"
	"github.com/rhizome-router/rhizome/mesh/core"
)

// peering is what a router tells the other replicas and has heard of them. It
// is nil for a router that is alone. Its parts are guarded by the router's lock,
// which is never taken within Do of the mesh, or used within Do only.
type peering struct {
	mesh         *mesh.Node
	refused, bad atomic.Uint64 // things beyond a bound, and values that could not be read

	touched     []*fleet.Member // whose requests came, went or got their first token
	isIn        map[*fleet.Member]bool
	told        map[*fleet.Member]fleet.Share // what is on our page, without nothings
	at          int                           // whose numbers are looked at next
	due         []MemberShare                 // scratch
	mean        mean                          // of how long requests take
	toldMean    time.Duration
	learnedAt   clock.Instant // when peers were told what was learned
	ticketNews  []ticketNews
	sentNews    []sentNews
	saidSamples map[ClassKey]int
	saidRho     map[observedLink]float64
	rhos        map[observedLink][]observedRho
	fits        map[ClassKey]peerFit

	// Within Do.
	core       *core.Core
	counted    clock.Instant // when the peers were
	tickets    map[peerTicket]index.Ticket
	made       map[string]madeTicket // by key on our page, some that are over included
	saidAs     uint64                // the incarnation whose page they are on
	lastTicket uint64                // the greatest number that peers were told
	heard      []heardValue

	// Of who calls Tell.
	saidSent   *index.Approx
	toldSent   map[kv.Target]*toldRuns
	senders    map[sender]senderState
	formerSent map[kv.Target]uint64
	waiting    []heardValue // for their writer's clock
}

// heardValue is a value of a peer's page that waits for the next Tell.
type heardValue struct {
	kind   core.Kind
	writer core.Replica
	key    string
	value  []byte
	gone   bool
	at     clock.Instant // when it was put, by our clock
	came   clock.Instant
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
	return &peering{
		mesh: node, isIn: make(map[*fleet.Member]bool), told: make(map[*fleet.Member]fleet.Share),
		saidSamples: make(map[ClassKey]int), saidRho: make(map[observedLink]float64),
		rhos: make(map[observedLink][]observedRho), fits: make(map[ClassKey]peerFit),
		tickets: make(map[peerTicket]index.Ticket), made: make(map[string]madeTicket), saidSent: index.NewApprox(index.ApproxConfig{MaxEntries: toldEntries}),
		toldSent: make(map[kv.Target]*toldRuns), senders: make(map[sender]senderState), formerSent: make(map[kv.Target]uint64),
	}
}

// listen has the mesh tell what peers say.
func (r *Router) listen() {
	p := r.peering
	if p == nil {
		return
	}
	p.mesh.Do(func(_ clock.Instant, c *core.Core) { p.core = c })
	p.mesh.HearPage(core.Tickets, func(writer core.Replica, key string, it *crdt.PageItem) { p.hearTicket(r, writer, key, it) })
	for _, kind := range [...]core.Kind{core.Sent, core.Links, core.Fits} {
		p.mesh.HearPage(kind, func(writer core.Replica, key string, it *crdt.PageItem) {
			if len(p.heard) >= maxHeard {
				p.refused.Add(1)
				return
			}
			h := heardValue{kind: kind, writer: writer, key: key, gone: it == nil, came: r.deps.Clock.Now()}
			if it != nil {
				h.value, h.at = it.Value, clock.Instant(it.At)
			}
			p.heard = append(p.heard, h)
		})
	}
}

// maxHeard bounds how many values wait for the next Tell.
const maxHeard = 1 << 17

// mostWaiting is how long a value waits for others that it needs.
const mostWaiting = 5 * time.Second

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
	r.leases.contact(now)
	p.gather(r, now, view.Members)
	mean, news := p.meanRequest()
	tickets, sent := p.ticketNews, p.sentNews
	p.ticketNews, p.sentNews = nil, nil
	var fits []toldFit
	var rhos map[observedLink]float64
	second := now.Sub(p.learnedAt) >= learnedEvery
	if second {
		p.learnedAt = now
		fits, rhos = p.learned(r, view.Members)
	}
	r.mu.Unlock()
	if second {
		r.deps.Index.Expire(now) // decisions do it too, but there may be none
	}

	peers, heard := -1, p.waiting
	p.mesh.Do(func(now clock.Instant, c *core.Core) {
		for i := range p.due {
			fleet.PutShare(now, c, p.due[i].Target, &p.due[i].Share)
		}
		if news {
			fleet.PutMeanRequest(now, c, mean)
		}
		p.putTickets(now, c, r.deps.Index, tickets)
		p.putSent(now, c, sent)
		putLearned(now, c, fits, rhos)
		if second {
			p.pruneSent(c, view)
		}
		heard, p.heard = append(heard, p.heard...), nil
		if now.Sub(p.counted) >= countEvery {
			p.counted = now
			peers = p.count(r, now, c)
		}
	})
	if peers >= 0 {
		r.SetPeers(peers, peerDelay)
	}
	p.take(r, now, view, heard)
}

// count counts the peers that live, and forgets what the others promised.
func (p *peering) count(r *Router, now clock.Instant, c *core.Core) int {
	alive := make(map[string]bool)
	for _, peer := range c.Peers(now) {
		if peer.Alive {
			alive[peer.Name] = true
		}
	}
	p.voidTickets(r.deps.Index, alive)
	return len(alive)
}

// take takes what peers said. What was sent waits for the clock of who sent it,
// if that is not known.
func (p *peering) take(r *Router, now clock.Instant, view *fleet.View, heard []heardValue) {
	p.waiting = nil
	if len(heard) == 0 {
		return
	}
	learned := false
	for i := range heard {
		switch h := &heard[i]; {
		case h.kind != core.Sent:
			learned = true
		case !p.hearSent(view, r.deps.Approx, h) && now.Sub(h.came) < mostWaiting:
			p.waiting = append(p.waiting, *h)
		}
	}
	if !learned {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range heard {
		switch h := &heard[i]; h.kind {
		case core.Links:
			p.hearRho(h)
		case core.Fits:
			p.hearFit(h)
		}
	}
	for _, c := range r.classAt { // order-free: each by itself
		p.adopt(c)
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
