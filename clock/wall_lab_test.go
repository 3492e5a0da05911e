//go:build lab

package clock

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWallIsOffByWhatTheFileSays(t *testing.T) {
	name := filepath.Join(t.TempDir(), "offset")
	t.Setenv(OffsetVariable, name)
	for _, c := range []struct {
		text string
		want time.Duration
	}{{"", 0}, {"1h\n", time.Hour}, {"-1h", -time.Hour}, {"much", 0}} {
		if c.text != "" {
			if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if off := time.Until(Wall()) - c.want; off.Abs() > time.Minute {
			t.Errorf("with %q in the file the time of day is off by %v more", c.text, off)
		}
	}
}
