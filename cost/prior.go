package cost

import "github.com/rhizome-router/rhizome/kv"

// param is one constant that a fit learns.
type param int

const (
	overhead    param = iota // o
	promptToken              // of the tokeniser
	step                     // a
	seq                      // b
	kvToken                  // c
	token                    // e
	pair                     // q
	firstLink                // time per token of each lower tier, CPU's first
	numParams   = firstLink + param(kv.NumTiers-1)
)

var paramNames = [numParams]string{"overhead", "prompt_token", "step", "seq", "kv_token", "token", "pair", "link_cpu", "link_disk",
	"link_remote", "link_other"}

type (
	vector [numParams]float64
	matrix [numParams]vector
)

// prior says how far the true constants may be from those that a fit starts
// with: standard deviations of their logarithms. All move together by common,
// and each by own on top.
type prior struct {
	common float64
	own    vector
	// forget is the share of what was learned that one sample makes stale: the
	// constants follow an Ornstein-Uhlenbeck process about their start.
	forget float64
}

var (
	// genericPrior is for constants of which only the ratios are trusted, and
	// they little: between the presets of engine/model, e moves with a, while
	// b, c and q go their own way by up to a factor of 4.
	genericPrior = prior{common: 2, forget: 5e-9,
		own: vector{1, 1, 0.5, 1, 1, 0.5, 1, 0.7, 0.7, 0.7, 0.7}}
	// presetPrior is for constants of the very model and accelerator, measured
	// on other machines under another engine release.
	presetPrior = prior{common: 0.4, forget: 1e-8,
		own: vector{1, 1, 0.2, 0.5, 0.4, 0.2, 0.4, 0.7, 0.7, 0.7, 0.7}}
	// workerPrior is how far a worker is from the others of its class.
	workerPrior = prior{common: 0.2, forget: 5e-6,
		own: vector{0.2, 0.2, 0.07, 0.1, 0.07, 0.07, 0.1, 0.3, 0.3, 0.3, 0.3}}
	// suspectPrior is what an alarm adds to the doubt: whatever happened to a
	// worker, it happened to all of its constants.
	suspectPrior = prior{common: 1.2,
		own: vector{0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05, 0.3, 0.3, 0.3, 0.3}}
)

// covariance returns the entry of two parameters.
func (p *prior) covariance(i, j param) float64 {
	v := p.common * p.common
	if i == j {
		v += p.own[i] * p.own[i]
	}
	return v
}

func (m *matrix) add(p *prior) {
	for i := range numParams {
		for j := range numParams {
			m[i][j] += p.covariance(i, j)
		}
	}
}

// times returns m·v.
func (m *matrix) times(v *vector) (out vector) {
	for i := range m {
		for j := range v {
			out[i] += m[i][j] * v[j]
		}
	}
	return out
}

func (v *vector) dot(w *vector) float64 {
	sum := 0.0
	for i := range v {
		sum += v[i] * w[i]
	}
	return sum
}
