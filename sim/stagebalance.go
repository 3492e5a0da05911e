package sim

import "time"

// balancer is what stands before replicas in a deployment: it asks each every now
// and then whether it is ready, and waits for the answer for a while, so that what
// it knows of a replica's end is late.
type balancer struct {
	stopped []float64 // by replica: since when it does not answer, where it does not
}

const (
	// balanceEvery is the time between two questions, and balancePatience how long an
	// answer may take. A process that is gone answers at once that it is.
	balanceEvery    = 200 * time.Millisecond
	balancePatience = time.Second
)

// Balance has requests come by a balancer. Otherwise clients know at once which
// replicas are dead, and never which stand still.
func (s *Stage) Balance() { s.balancer = &balancer{make([]float64, len(s.w.replicas))} }

// stops notes that a replica that answered does so no more.
func (b *balancer) stops(r *replica, now float64) {
	if b != nil && r.awake() {
		b.stopped[r.n] = now
	}
}

// sends reports whether a replica is sent requests: it is ready, or the balancer
// does not know that it is not.
func (s *Stage) sends(r *replica) bool {
	late := 0.0
	switch now := micros(s.Now()); {
	case s.balancer == nil && r.dead:
		return false
	case s.balancer != nil && r.paused:
		late = micros(balancePatience)
		fallthrough
	case s.balancer != nil && r.dead:
		return now-s.balancer.stopped[r.n] < late+micros(balanceEvery)
	}
	return r.mesh == nil || r.mesh.warm() || r.life == 0
}
