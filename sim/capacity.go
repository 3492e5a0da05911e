package sim

import (
	"context"
	"fmt"
	"math"
)

const (
	// capacityGoodput is the goodput that a fleet must keep up.
	capacityGoodput = 0.95
	// capacitySteps is how often the interval between a speed that is held and
	// one that is not is halved: the result is within about 3 %.
	capacitySteps = 5
	// capacityDoublings bounds the search upwards and downwards.
	capacityDoublings = 6
)

// Capacity finds for each policy the highest speed of a scenario in open loop
// at which goodput is at least 95 %, and returns the table at that scenario's
// own speed with the capacities, and the goodput at every speed tried, in it.
func Capacity(ctx context.Context, sc Scenario, o Options) (*Table, error) {
	if sc.Workload.Kind == Agents || sc.Workload.Kind == Coding {
		return nil, fmt.Errorf("scenario %s: a closed loop has no speed to search; ask for more --sessions", sc.Name)
	}
	table, err := Play(ctx, sc, o)
	if err != nil {
		return nil, err
	}
	var work []func() error
	curves := make([][]trial, len(o.Policies))
	for i := range o.Policies {
		one := o
		one.Policies, one.Parallel, one.Progress = o.Policies[i:i+1], 1, nil
		name := o.Policies[i].Name
		work = append(work, func() (err error) {
			row := table.Policies[name]
			row.CapacitySpeed, curves[i], err = capacity(row.Goodput, sc.Workload.Speed, func(speed float64) (float64, error) {
				at := sc
				at.Workload.Speed = speed
				return goodputAt(ctx, at, one)
			})
			return err
		})
	}
	if err := parallel(ctx, o.Parallel, work); err != nil {
		return nil, err
	}
	for i, p := range o.Policies {
		if picture := table.Pictures[p.Name]; picture != nil {
			for _, c := range curves[i] {
				picture.Speeds, picture.Goodput = append(picture.Speeds, c.speed), append(picture.Goodput, c.goodput)
			}
		}
	}
	return table, nil
}

// goodputAt plays a scenario by one policy.
func goodputAt(ctx context.Context, sc Scenario, o Options) (float64, error) {
	plans, err := plansOf(ctx, &sc, o)
	if err != nil {
		return 0, err
	}
	runs, err := playAll(ctx, &sc, o, plans)
	if err != nil {
		return 0, err
	}
	return tabulate(sc, o, runs, nil).Policies[o.Policies[0].Name].Goodput, nil
}

// trial is one speed that was tried.
type trial struct{ speed, goodput float64 }

// capacity searches the highest speed that is held, from one where the goodput
// is known: up or down by doubling, then by halving the interval between.
func capacity(goodput, speed float64, play func(speed float64) (float64, error)) (float64, []trial, error) {
	curve := []trial{{speed, goodput}}
	try := func(speed float64) (bool, error) {
		g, err := play(speed)
		if err != nil {
			return false, err
		}
		curve = insertTrial(curve, trial{speed, g})
		return g >= capacityGoodput, nil
	}
	held, lost := 0.0, math.Inf(1)
	if goodput >= capacityGoodput {
		held = speed
	} else {
		lost = speed
	}
	for range capacityDoublings {
		next := 2 * held
		if held == 0 {
			next = lost / 2
		} else if !math.IsInf(lost, 1) {
			break
		}
		ok, err := try(next)
		if err != nil {
			return 0, nil, err
		}
		if ok {
			held = next
		} else {
			lost = next
		}
		if held > 0 && !math.IsInf(lost, 1) {
			break
		}
	}
	if held == 0 || math.IsInf(lost, 1) {
		return held, curve, nil
	}
	for range capacitySteps {
		middle := math.Sqrt(held * lost)
		ok, err := try(middle)
		if err != nil {
			return 0, nil, err
		}
		if ok {
			held = middle
		} else {
			lost = middle
		}
	}
	return held, curve, nil
}

func insertTrial(curve []trial, t trial) []trial {
	i := 0
	for i < len(curve) && curve[i].speed < t.speed {
		i++
	}
	curve = append(curve, trial{})
	copy(curve[i+1:], curve[i:])
	curve[i] = t
	return curve
}
