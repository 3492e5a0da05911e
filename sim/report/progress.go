package report

import (
	"io"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress draws a progress bar on w, usually standard error and a terminal;
// on anything else it draws nothing. Any goroutine may call step: it says that
// n more of total are done, and what is being done now. Call finish before
// anything else is written to w, whether all was done or not.
func Progress(w io.Writer, total int) (step func(n int, label string), finish func()) {
	var now atomic.Pointer[string]
	box := mpb.New(mpb.WithOutput(w), mpb.WithWidth(48))
	bar := box.AddBar(int64(total),
		mpb.PrependDecorators(decor.CountersNoUnit("%d / %d runs ")),
		mpb.AppendDecorators(
			decor.Percentage(decor.WCSyncSpace),
			decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace), ""),
			decor.Any(func(decor.Statistics) string {
				if l := now.Load(); l != nil {
					return "  " + *l
				}
				return ""
			}),
		),
	)
	step = func(n int, label string) {
		label = plain(label)
		now.Store(&label)
		bar.IncrBy(n)
	}
	finish = func() {
		bar.Abort(false)
		box.Wait()
	}
	return step, finish
}
