package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/engine/model"
)

// How far a seed's world may be from the presets. No router is told.
const (
	classSpread  = 0.26 // σ of the log of each constant: ±30 %
	workerSpread = 0.05 // the same between workers of one class
	stepNoise    = 0.10 // σ of one iteration's duration
	setupNoise   = 0.30 // σ of the log of a transfer's set-up

	meanOverheadMicros  = 4000 // HTTP and scheduling before the engine sees a request
	meanTokeniseMicros  = 0.25 // per prompt token
	meanResponseMicros  = 800  // from the engine's token to the router
	overheadSpread      = 0.4  // σ of the log of these three
	requestJitterMicros = 500  // mean of what one request waits on top
)

// nature is one seed's world: what the workers are really like.
type nature struct {
	preset         model.Preset
	linear         []model.Linear
	bytesPerSecond []float64
	setupMicros    float64
	budgetTokens   int // of an iteration

	overheadMicros, tokeniseMicros, responseMicros float64
	jitter                                         *rand.Rand
}

// newNature draws the world of a seed. Equal seeds give equal worlds, whatever
// is routed in them.
func newNature(sc *Scenario, seed uint64) (*nature, error) {
	preset, err := model.PresetByName(sc.Fleet.Preset)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", sc.Name, err)
	}
	r := clock.Rand(seed, "nature "+preset.Name)
	spread := func(sigma float64) float64 { return math.Exp(sigma * r.NormFloat64()) }
	n := &nature{
		preset: preset, budgetTokens: cmp.Or(sc.Fleet.BudgetTokens, model.DefaultBudgetTokens), setupMicros: model.DefaultSetupMicros * spread(setupNoise),
		overheadMicros: meanOverheadMicros * spread(overheadSpread), tokeniseMicros: meanTokeniseMicros * spread(overheadSpread),
		responseMicros: meanResponseMicros * spread(overheadSpread), jitter: clock.Rand(seed, "request jitter"),
	}
	class, all := preset.Linear, spread(classSpread)
	for _, p := range constantsOf(&class) {
		if preset.Timing == nil {
			all = spread(classSpread)
		}
		*p *= all // a form of its own keeps its shape
	}
	bandwidth := sc.Fleet.BytesPerSecond * spread(classSpread)
	for range sc.Fleet.Workers {
		own, all := class, spread(workerSpread)
		for _, p := range constantsOf(&own) {
			if preset.Timing == nil {
				all = spread(workerSpread)
			}
			*p *= all
		}
		n.linear = append(n.linear, own)
		n.bytesPerSecond = append(n.bytesPerSecond, bandwidth*spread(workerSpread))
	}
	return n, nil
}

func constantsOf(l *model.Linear) []*float64 { return []*float64{&l.A, &l.B, &l.C, &l.E, &l.Q} }

// timing is how long a worker's iterations take.
func (n *nature) timing(worker int) model.Timing {
	if n.preset.Timing == nil {
		return model.Padded{Linear: n.linear[worker]}
	}
	return stretched{n.preset.Timing, n.linear[worker].E / n.preset.Linear.E}
}

// stretched is a timing in which all takes so many times as long.
type stretched struct {
	model.Timing
	factor float64
}

func (s stretched) Iteration(l model.Load) float64      { return s.factor * s.Timing.Iteration(l) }
func (s stretched) Decodes(l model.Load, k int) float64 { return s.factor * s.Timing.Decodes(l, k) }

// requestMicros is how long a request is on its way before the engine has it.
func (n *nature) requestMicros(promptTokens int) float64 {
	return n.overheadMicros + n.tokeniseMicros*float64(promptTokens) + requestJitterMicros*n.jitter.ExpFloat64()
}

// setup returns what varies the set-up of one worker's transfers.
func setup(seed uint64, worker int) func() float64 {
	r := clock.Rand(seed, fmt.Sprintf("set-up of worker %d", worker))
	return func() float64 { return math.Exp(setupNoise * r.NormFloat64()) }
}

// noise returns what disturbs one worker's iterations.
func noise(seed uint64, worker int) func() float64 {
	r := clock.Rand(seed, fmt.Sprintf("noise of worker %d", worker))
	return func() float64 { return max(0.5, 1+stepNoise*r.NormFloat64()) }
}
