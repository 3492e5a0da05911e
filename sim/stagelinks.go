package sim

import "time"

// Way is how packets go from one replica to another, on top of what the
// scenario's network does.
type Way struct {
	Cut   bool
	Loss  float64       // share of packets lost, and sent again
	Delay time.Duration // mean of what they take longer
	// Late is the share that comes Lateness late, as those do that others pass
	// on their way.
	Late     float64
	Lateness time.Duration
}

// pair is two replicas and the connection between them.
type pair struct {
	a, b       *replica
	connection int
	closed     bool    // no packet comes through, one way at least
	since, due float64 // when it closed; when it may be joined again
	missed     bool    // something was lost on the present connection
	down, lost bool    // as both of them know: no connection; dead
}

// watchEvery is how often the stage looks after connections.
const watchEvery = 50 * time.Millisecond

// SetWay sets how packets go from one replica to another.
func (s *Stage) SetWay(from, to int, way Way) { s.ways[from][to] = way }

// Way returns how they go now.
func (s *Stage) Way(from, to int) Way { return s.ways[from][to] }

func (s *Stage) pair(a, b *replica) *pair {
	i, j := min(a.n, b.n), max(a.n, b.n)
	return s.pairs[j*(j-1)/2+i]
}

// drops reports whether a packet from one replica to another is lost, and notes
// that the connection has missed something.
func (s *Stage) drops(from, to *replica) bool {
	if s == nil {
		return false
	}
	p := s.pair(from, to)
	if to.dead || p.down {
		return true
	}
	if s.ways[from.n][to.n].Cut {
		p.missed = true
		return true
	}
	return false
}

func (s *Stage) connection(a, b *replica) int {
	if s == nil {
		return 0
	}
	return s.pair(a, b).connection
}

func (s *Stage) loss(from, to *replica) float64 {
	if s == nil {
		return 0
	}
	return s.ways[from.n][to.n].Loss
}

func (s *Stage) delay(from, to *replica) float64 {
	if s == nil {
		return 0
	}
	return micros(s.ways[from.n][to.n].Delay)
}

// later draws how much longer a packet takes.
func (s *Stage) later(from, to *replica) (later float64) {
	if s == nil {
		return 0
	}
	way := &s.ways[from.n][to.n]
	if way.Delay > 0 {
		later = micros(way.Delay) * (0.5 + from.rand.Float64())
	}
	if way.Late > 0 && from.rand.Float64() < way.Late {
		later += micros(way.Lateness)
	}
	return later
}

// open reports whether packets come through between two replicas both ways.
func (s *Stage) open(a, b *replica) bool {
	return a.awake() && b.awake() && !s.ways[a.n][b.n].Cut && !s.ways[b.n][a.n].Cut
}

// watch finds out which connections are broken and which can be made again, as
// the replicas' search for one another does: see mesh.Node.
func (s *Stage) watch(now float64) {
	for _, p := range s.pairs {
		if s.open(p.a, p.b) {
			s.joins(p, now)
			continue
		}
		if !p.closed {
			p.closed, p.since = true, now
		}
		s.parts(p, now)
	}
}

// joins connects two replicas that can reach each other.
func (s *Stage) joins(p *pair, now float64) {
	if p.closed {
		p.closed, p.due = false, now
		if p.down {
			p.due += float64(draw(s.w.seed, "rejoin", uint64(p.a.n)<<40|uint64(p.b.n)<<32|uint64(p.connection)) % uint64(rejoinMicros))
		}
	}
	if now < p.due || !p.down && !p.missed {
		return
	}
	p.down, p.missed, p.lost = false, false, false
	p.connection++
	p.a.mesh.met(p.b.mesh.name)
	p.b.mesh.met(p.a.mesh.name)
	s.w.carry(p.a, now)
	s.w.carry(p.b, now)
}

// parts lets two replicas that can't reach each other know it: the connection
// breaks, and membership calls a peer dead that nobody else can reach for it.
func (s *Stage) parts(p *pair, now float64) {
	if now-p.since < silenceMicros {
		return
	}
	both := func(do func(r *replicated, peer string)) {
		for _, end := range [][2]*replica{{p.a, p.b}, {p.b, p.a}} {
			if r, peer := end[0], end[1].mesh.name; !r.dead {
				s.w.on(r, now, func(float64) { do(r.mesh, peer) })
			}
		}
	}
	if !p.down {
		p.down = true
		p.connection++
		both((*replicated).down)
	}
	if !p.lost && !s.bridged(p) {
		p.lost = true
		both((*replicated).lost)
	}
}

// bridged reports whether some replica can reach both of a pair.
func (s *Stage) bridged(p *pair) bool {
	for _, r := range s.w.replicas {
		if r != p.a && r != p.b && s.open(r, p.a) && s.open(r, p.b) {
			return true
		}
	}
	return false
}
