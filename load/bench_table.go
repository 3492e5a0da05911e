package load

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// The targets of the front door.
const (
	targetAddedMicros4K  = 150.0
	targetRelayRatio500K = 1.4
	targetRPSPerCore     = 3000.0
)

// WriteTable writes the report for a human, with the targets.
func (r *BenchReport) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "what the router adds to a request, µs; %d rounds in turn, %d cores, %.0f s\n\n", r.Rounds, r.Cores, r.DurationSeconds)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "body\tdirect p50\trelay adds p50\trouter adds p50\tp99\trouter/relay\t")
	ratio := func(a, b Figure) Figure { return a / b }
	row := func(size string, direct, relay, p50, p99 Figure) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", size, direct.digits(0), relay.digits(0), p50.digits(0), p99.digits(0), ratio(p50, relay).digits(2))
	}
	row("4 KB", r.DirectP50Micros4K, r.RelayP50Micros4K, r.AddedP50Micros4K, r.AddedP99Micros4K)
	row("64 KB", r.DirectP50Micros64K, r.RelayP50Micros64K, r.AddedP50Micros64K, r.AddedP99Micros64K)
	row("500 KB", r.DirectP50Micros500K, r.RelayP50Micros500K, r.AddedP50Micros500K, r.AddedP99Micros500K)
	t.Flush() // writes to b, which cannot fail
	fmt.Fprintf(&b, "\n4 KB requests a second on one core, %d clients: %s (relay %s)\n\n", r.Connections, r.RPSPerCore.digits(0), r.RelayRPSPerCore.digits(0))
	verdict := func(met bool) string {
		if met {
			return "met"
		}
		return "missed"
	}
	fmt.Fprintf(&b, "targets: p50 at 4 KB at most %.0f µs: %s; at 500 KB at most %.1f× the relay: %s; at least %.0f a second on a core: %s\n",
		targetAddedMicros4K, verdict(r.AddedP50Micros4K <= targetAddedMicros4K),
		targetRelayRatio500K, verdict(ratio(r.AddedP50Micros500K, r.RelayP50Micros500K) <= targetRelayRatio500K),
		targetRPSPerCore, verdict(r.RPSPerCore >= targetRPSPerCore))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// BenchBar draws a progress bar on w, a terminal. Give update to
// [BenchConfig.Progress], and call done before anything else is written to w.
func BenchBar(w io.Writer) (update func(share float64), done func()) {
	const steps = 1000
	box := mpb.New(mpb.WithOutput(w), mpb.WithWidth(60))
	bar := box.AddBar(steps, mpb.PrependDecorators(decor.Name("measuring ")), mpb.AppendDecorators(decor.Percentage()))
	return func(share float64) { bar.SetCurrent(int64(share * steps)) }, func() { bar.Abort(false); box.Wait() }
}
