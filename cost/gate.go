package cost

// Gate trusts a tier less while its link is congested: additive increase,
// multiplicative decrease on the utilisation seen at each scrape. A hit behind
// a gate that is open to the share g is priced at g·load +
// (1 − g)·max(load, recompute): closing it can't stop the engine from loading,
// so a gated hit is never cheaper than it would be. The zero value is open.
type Gate struct {
	closed float64 // 1 − g
}

const (
	gateLimit    = 0.85 // utilisation above which the gate closes by half
	gateIncrease = 0.1
	gateLeast    = 1.0 / 64
)

// Observe takes one scrape's utilisation of the link, 0 to 1.
func (x *Gate) Observe(rho float64) {
	g := 1 - x.closed
	if rho > gateLimit {
		g = max(gateLeast, g/2)
	} else {
		g = min(1, g+gateIncrease)
	}
	x.closed = 1 - g
}

// Open returns g, above 0 and at most 1.
func (x *Gate) Open() float64 { return 1 - x.closed }

// gated is the price of a hit behind a gate that is closed to a share.
func gated(load, recompute, closed float64) float64 {
	return load + closed*max(0, recompute-load)
}
