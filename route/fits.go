package route

import (
	"cmp"
	"slices"

	"github.com/rhizome-router/rhizome/cost"
	"github.com/rhizome-router/rhizome/fleet"
	"github.com/rhizome-router/rhizome/kv"
)

// Fitted is what is learned of one worker.
type Fitted struct {
	Worker string   `json:"worker"` // its URL
	Rank   int16    `json:"rank"`   // -1: the worker as a whole
	Class  ClassKey `json:"class"`
	FitState
}

// FitState says what a worker's constants are and what they rest on. Constants
// of a class that is not calibrated are those it began with, more or less.
type FitState struct {
	Constants  Constants `json:"constants"`
	Samples    int       `json:"samples"`       // of the worker itself
	OfClass    int       `json:"class_samples"` // of all workers of its class
	Calibrated bool      `json:"calibrated"`    // the class has enough of them
	Fixed      bool      `json:"fixed,omitempty"`
	MeanError  float64   `json:"mean_error"` // of |log(measured/predicted)|, samples of late
	Alarms     int       `json:"alarms"`     // times it became much slower or faster
}

// Constants are the physics of a worker, as fitted.
type Constants struct {
	OverheadMicros    float64 `json:"overhead_micros"`
	PromptTokenMicros float64 `json:"prompt_token_micros"`
	StepMicros        float64 `json:"step_micros"`
	SeqMicros         float64 `json:"seq_micros"`
	KVTokenMicros     float64 `json:"kv_token_micros"`
	TokenMicros       float64 `json:"token_micros"`
	PairMicros        float64 `json:"pair_micros"`
	// LoadTokenMicros is the time to load one token from each lower tier.
	LoadTokenMicros [kv.NumTiers]float64 `json:"load_token_micros"`
}

func constantsOf(c *cost.Class) Constants {
	out := Constants{
		OverheadMicros: c.OverheadMicros, PromptTokenMicros: c.PromptTokenMicros, StepMicros: c.StepMicros, SeqMicros: c.SeqMicros,
		KVTokenMicros: c.KVTokenMicros, TokenMicros: c.TokenMicros, PairMicros: c.PairMicros,
	}
	for t := kv.CPU; t < kv.NumTiers; t++ {
		if b := c.Links[t].BytesPerMicro; b > 0 {
			out.LoadTokenMicros[t] = c.KVBytes / b
		}
	}
	return out
}

func (r *Router) fitState(m *fleet.Member, constants *cost.Class) FitState {
	s := FitState{Constants: constantsOf(constants), Samples: m.Fit.Samples(), Fixed: r.cfg.Fixed,
		MeanError: m.Fit.MeanError(), Alarms: m.Fit.Alarms()}
	if m.ClassFit != nil {
		s.OfClass, s.Calibrated = m.ClassFit.Samples(), m.ClassFit.Calibrated()
	}
	return s
}

// Fits returns what is learned of every worker that was ever considered.
func (r *Router) Fits() []Fitted {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Fitted
	for _, m := range r.deps.Fleet.View().Members {
		if m.ClassFit == nil {
			continue
		}
		constants := r.constants(m)
		out = append(out, Fitted{m.Worker.Spec.URL, m.Target.Rank, r.classes[m.ClassFit].key, r.fitState(m, &constants)})
	}
	return out
}

// FitStates returns what the classes have learned, to be kept beyond the
// process and given back in Config.Fits.
func (r *Router) FitStates() map[ClassKey]cost.FitState {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[ClassKey]cost.FitState, len(r.classAt))
	// order-free: every class becomes one entry
	for key, c := range r.classAt {
		out[key] = c.fit.State(c.base)
	}
	return out
}

// byKey are the classes in a fixed order.
func (r *Router) byKey() []*class {
	all := make([]*class, 0, len(r.classAt))
	// order-free: sorted below
	for _, c := range r.classAt {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *class) int {
		return cmp.Or(cmp.Compare(a.key.Model, b.key.Model), cmp.Compare(a.key.Engine, b.key.Engine), cmp.Compare(a.key.Preset, b.key.Preset))
	})
	return all
}
