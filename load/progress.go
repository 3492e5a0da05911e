package load

import (
	"io"
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// IsTerminal tells whether w is a terminal, the only place for progress bars
// and redrawn tables.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Bar draws a progress bar on w, which must be a terminal, usually standard
// error. Give update to [ReplayConfig.Progress], and call done before anything
// else is written to w, whether the replay succeeded or not.
func Bar(w io.Writer) (update func(Progress), done func()) {
	box := mpb.New(mpb.WithOutput(w), mpb.WithWidth(60))
	bar := box.AddBar(0,
		mpb.PrependDecorators(decor.CountersNoUnit("%d / %d answers ")),
		mpb.AppendDecorators(decor.Percentage(decor.WCSyncSpace), decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), "")),
	)
	update = func(p Progress) {
		bar.SetTotal(int64(p.Total), false)
		bar.SetCurrent(int64(p.Done))
	}
	done = func() {
		bar.Abort(false)
		box.Wait()
	}
	return update, done
}
