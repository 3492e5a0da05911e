package report

import (
	"time"

	"github.com/rhizome-router/rhizome/chaos"
)

// point is a value at a time; series one line of a plot.
type point struct {
	at    time.Duration
	value float64
}

type series struct {
	name   string
	points []point
}

// window is over what requests are averaged.
const window = 2 * time.Second

// perWindow averages a figure of the requests that were answered, by the window
// in which they came.
func perWindow(h *chaos.History, figure func(r *chaos.Request) (value, weight float64)) []point {
	n := int(h.End/window) + 1
	sums, weights := make([]float64, n), make([]float64, n)
	for i := range h.Requests {
		if r := &h.Requests[i]; r.Outcome == chaos.Answered && r.At <= h.End {
			v, w := figure(r)
			sums[r.At/window] += v
			weights[r.At/window] += w
		}
	}
	var out []point
	for i := range n {
		if weights[i] > 0 {
			out = append(out, point{time.Duration(i)*window + window/2, sums[i] / weights[i]})
		}
	}
	return out
}

func hitRate(h *chaos.History) []series {
	return []series{{"share of prompt tokens found in caches", perWindow(h, func(r *chaos.Request) (float64, float64) {
		return float64(r.CachedTokens), float64(r.PromptTokens)
	})}}
}

func ttft(h *chaos.History) []series {
	out := []series{{"mean TTFT of the requests that came then, s", perWindow(h, func(r *chaos.Request) (float64, float64) {
		return (r.First - r.At).Seconds(), 1
	})}}
	if h.IdealTTFT > 0 {
		v := h.IdealTTFT.Seconds()
		out = append(out, series{"an all-knowing router's, over the whole run", []point{{0, v}, {h.End, v}}})
	}
	return out
}

// byReplica takes a figure of each sample; replicas that are dead have none.
func byReplica(h *chaos.History, figure func(x *chaos.Sample, all []*chaos.Sample) float64) []series {
	var out []series
	begin := 0
	for begin < len(h.Samples) {
		end := begin
		var round []*chaos.Sample
		for ; end < len(h.Samples) && h.Samples[end].At == h.Samples[begin].At; end++ {
			round = append(round, &h.Samples[end])
		}
		for _, x := range round {
			for len(out) <= x.Replica {
				out = append(out, series{name: "replica"})
			}
			if x.Live {
				out[x.Replica].points = append(out[x.Replica].points, point{x.At, figure(x, round)})
			}
		}
		begin = end
	}
	return out
}

// lag is how many batches a replica is behind the one that is furthest, of all
// workers together.
func lag(h *chaos.History) []series {
	return byReplica(h, func(x *chaos.Sample, all []*chaos.Sample) float64 {
		behind := 0.0
		for worker, most := range furthest(all) { // order-free: a sum of whole numbers
			behind += float64(most.Next) - float64(positionOf(x, worker, most.Boot))
		}
		return behind
	})
}

// agreement is the share of workers of which a replica holds just what the one
// does that is furthest.
func agreement(h *chaos.History) []series {
	return byReplica(h, func(x *chaos.Sample, all []*chaos.Sample) float64 {
		most := furthest(all)
		if len(most) == 0 {
			return 1
		}
		equal := 0
		for worker, m := range most { // order-free: a count
			for _, st := range x.Streams {
				if st.Worker == worker && st.Boot == m.Boot && st.Next == m.Next && st.Digest == m.Digest {
					equal++
				}
			}
		}
		return float64(equal) / float64(len(most))
	})
}

func members(h *chaos.History) []series {
	return byReplica(h, func(x *chaos.Sample, _ []*chaos.Sample) float64 { return float64(len(x.Members)) })
}

func leader(h *chaos.History) []series {
	out := byReplica(h, func(x *chaos.Sample, _ []*chaos.Sample) float64 { return float64(x.Leader) })
	for _, s := range out {
		for _, p := range s.points {
			if p.value >= 0 {
				return out
			}
		}
	}
	return nil // this ground has none
}

func furthest(all []*chaos.Sample) map[int]chaos.Stream {
	most := make(map[int]chaos.Stream)
	for _, x := range all {
		for _, st := range x.Streams {
			if m, ok := most[st.Worker]; x.Live && (!ok || st.Next > m.Next) {
				most[st.Worker] = st
			}
		}
	}
	return most
}

func positionOf(x *chaos.Sample, worker int, boot uint64) uint64 {
	for _, st := range x.Streams {
		if st.Worker == worker && st.Boot == boot {
			return st.Next
		}
	}
	return 0
}
