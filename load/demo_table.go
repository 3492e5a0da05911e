package load

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	redrawEvery = time.Second
	lineEvery   = 5 * time.Second // where nothing can be redrawn
	maxColumns  = 100
	maxRows     = 16 // workers shown, so that the table fits on a screen
)

// screen draws lines; on a terminal a frame takes the place of the one before.
type screen struct {
	w      io.Writer
	tty    bool
	height int   // lines of the frame that stands
	err    error // the first failed write; later ones are skipped
}

func newScreen(w io.Writer, tty bool) *screen { return &screen{w: w, tty: tty} }

// print writes lines that stay.
func (s *screen) print(lines []string) {
	s.height = 0
	s.write(strings.Join(lines, "\n") + "\n")
}

// frame draws lines over the last frame, with one write: each line is
// overwritten, then cleared to its end, so that nothing flickers.
func (s *screen) frame(lines []string) {
	var b strings.Builder
	if s.height > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", s.height)
	}
	for _, l := range lines {
		b.WriteString(clip(l, maxColumns))
		b.WriteString("\x1b[K\n")
	}
	if len(lines) < s.height {
		b.WriteString("\x1b[J")
	}
	s.height = len(lines)
	s.write(b.String())
}

func (s *screen) write(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.w, text)
	}
}

// draw shows the state until ctx ends, and once more then.
func (d *demo) draw(ctx context.Context, s *screen) {
	every := lineEvery
	if s.tty {
		every = redrawEvery
	}
	for {
		ended := d.cfg.Clock.Sleep(ctx, every) != nil
		if s.tty {
			s.frame(d.table())
		} else if !ended {
			s.print([]string{d.line()})
		}
		if ended {
			return
		}
	}
}

// routers says what the router is.
func (d *demo) routers() string {
	if n := len(d.router.Replicas); n > 1 {
		return fmt.Sprintf("%d routers in a mesh behind a random balancer, the first", n)
	}
	return "one router"
}

func (d *demo) greeting() []string {
	lines := []string{
		fmt.Sprintf("%d emulated workers of %s at %g× speed, %s: %s", len(d.workers.Lines), d.workers.Model, d.cfg.Speedup, d.routers(), d.router.URL),
		"try it:  curl -N " + d.router.URL + chatPath + " -H 'content-type: application/json' \\",
		fmt.Sprintf(`  -d '{"model":"%s","stream":true,"max_tokens":20,"messages":[{"role":"user","content":"Hello"}]}'`, d.workers.Model),
	}
	if d.router.Admin != "" {
		lines = append(lines, "admin:   "+d.router.Admin)
	}
	if d.cfg.Duration > 0 {
		return append(lines, fmt.Sprintf("ends after %v, or with Ctrl-C", d.cfg.Duration), "")
	}
	return append(lines, "ends with Ctrl-C", "")
}

// table is one frame.
func (d *demo) table() []string {
	stats := d.workers.Stats()
	lines := []string{fmt.Sprintf("%-24s %8s %7s %7s %9s %9s %7s %10s",
		"worker", "requests", "running", "waiting", "hit hbm", "hit tier", "KV", "TTFT mean")}
	row := func(name string, w WorkerStats, fill string, ttft Figure) {
		lines = append(lines, fmt.Sprintf("%-24s %8d %7d %7d %9s %9s %7s %10s",
			clip(name, 24), w.Requests, w.Running, w.Waiting, tokens(w.HitHBMTokens), tokens(w.HitTierTokens), fill, millis(ttft)))
	}
	var all WorkerStats
	var fill float64
	for i, w := range stats {
		all.Requests += w.Requests
		all.Running += w.Running
		all.Waiting += w.Waiting
		all.HitHBMTokens += w.HitHBMTokens
		all.HitTierTokens += w.HitTierTokens
		fill += w.KVFill
		if i < maxRows {
			row(w.Name, w, Figure(w.KVFill).percent(), d.workerTTFT(w.Name))
		}
	}
	if more := len(stats) - maxRows; more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	m, r := d.meter.measures(), d.routerStats()
	row("all", all, (Figure(fill) / Figure(len(stats))).percent(), m.TTFTMeanMillis)
	return append(lines, "", fmt.Sprintf("answers %d   failed %d   TTFT mean %s p99 %s   %.0f s",
		m.Requests, m.Errors, millis(m.TTFTMeanMillis), millis(m.TTFTP99Millis), d.cfg.Clock.Now().Sub(d.start).Seconds()),
		fmt.Sprintf("cached tokens: predicted %s, actual %s, off by %s, of %s prompt tokens (%s hit)",
			tokens(r.CachedPredicted), tokens(r.CachedActual), share(r.CachedAbsError, r.CachedActual), tokens(m.PromptTokens), m.HitShare.percent()))
}

// line is the state for places that cannot redraw.
func (d *demo) line() string {
	var all WorkerStats
	for _, w := range d.workers.Stats() {
		all.Running += w.Running
		all.Waiting += w.Waiting
		all.HitHBMTokens += w.HitHBMTokens
		all.HitTierTokens += w.HitTierTokens
	}
	m, r := d.meter.measures(), d.routerStats()
	return fmt.Sprintf("%.0fs: %d answers, %d failed, %d running, %d waiting, hit %s+%s, cached %s/%s, TTFT %s",
		d.cfg.Clock.Now().Sub(d.start).Seconds(), m.Requests, m.Errors, all.Running, all.Waiting, tokens(all.HitHBMTokens),
		tokens(all.HitTierTokens), tokens(r.CachedPredicted), tokens(r.CachedActual), millis(m.TTFTMeanMillis))
}

// lines is the summary for a human.
func (s DemoSummary) lines() []string {
	lines := []string{
		"",
		fmt.Sprintf("%d requests in %.1f s over %d workers%s, %d failed", s.Requests, s.WallSeconds, s.Workers, s.through(), s.Failed),
		fmt.Sprintf("TTFT mean %s, p99 %s (modelled)", millis(s.TTFTMeanMillis), millis(s.TTFTP99Millis)),
		fmt.Sprintf("prompt tokens %s: found in HBM %s, in lower tiers %s", tokens(s.PromptTokens), tokens(s.HitHBMTokens), tokens(s.HitTierTokens)),
		fmt.Sprintf("cached tokens: the router predicted %s, the answers told it %s; off by %s over the requests",
			tokens(s.CachedTokensPredicted), tokens(s.CachedTokensActual), share(s.CachedTokensAbsError, s.CachedTokensActual)),
		fmt.Sprintf("KV blocks stored in HBM %d, evicted %d (%s); restarts: %d of workers, %d of the router",
			s.StoredBlocks, s.EvictedBlocks, share(s.EvictedBlocks, s.StoredBlocks), s.WorkerRestarts, s.RouterRestarts),
	}
	if s.HitShareFirstHalf.Known() && s.HitShareSecondHalf.Known() {
		lines = append(lines, fmt.Sprintf("hit share %s in the first half, %s in the second", s.HitShareFirstHalf.percent(), s.HitShareSecondHalf.percent()))
	}
	for _, kind := range slices.Sorted(maps.Keys(s.ErrorKinds)) {
		lines = append(lines, fmt.Sprintf("failed: %d × %s", s.ErrorKinds[kind], kind))
	}
	if s.LastError != "" {
		lines = append(lines, "last error: "+s.LastError)
	}
	return lines
}

// through says through how many routers, if not one.
func (s DemoSummary) through() string {
	if s.Replicas < 2 {
		return ""
	}
	return fmt.Sprintf(" through %d routers", s.Replicas)
}

// share shows part of whole; a dash where there is no whole.
func share(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return Figure(float64(part) / float64(whole)).percent()
}

// tokens shows a count in at most seven characters.
func tokens(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 10_000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	case n < 10_000_000_000:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1fG", float64(n)/1e9)
}

func millis(f Figure) string {
	if !f.Known() {
		return "-"
	}
	return f.digits(0) + " ms"
}

// clip cuts text to n columns (a rune taken for one column).
func clip(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:n-1]) + "…"
}
