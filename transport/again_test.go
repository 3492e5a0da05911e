package transport

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// try is an attempt that ends after a while, or is stuck until it is broken off.
type try struct {
	after time.Duration // 0: stuck
	err   error
	stays bool // makes something though it was broken off
}

func TestFirst(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		tries   []try
		want    int // the try that is taken
		err     error
		took    time.Duration
		dropped int
	}{
		"the first is answered":          {[]try{{after: time.Millisecond}}, 1, nil, time.Millisecond, 0},
		"the first is answered late":     {[]try{{after: 1500 * time.Millisecond}, {after: time.Second}}, 1, nil, 1500 * time.Millisecond, 0},
		"the third is answered":          {[]try{{}, {}, {after: time.Millisecond}}, 3, nil, 2001 * time.Millisecond, 0},
		"one is refused":                 {[]try{{}, {after: time.Millisecond, err: refused}}, 0, refused, 1001 * time.Millisecond, 0},
		"nobody answers":                 {[]try{{}, {}, {}}, 0, context.DeadlineExceeded, 5 * time.Second, 0},
		"one is through when broken off": {[]try{{stays: true}, {after: time.Millisecond}}, 2, nil, 1001 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				dropped, began := 0, time.Now()
				var n atomic.Int64
				got, err := first(ctx, time.Second, len(c.tries), func(ctx context.Context) (int, error) {
					me := int(n.Add(1))
					x := c.tries[me-1]
					var over <-chan time.Time
					if x.after > 0 {
						over = time.After(x.after)
					}
					select {
					case <-over:
						return me, x.err
					case <-ctx.Done():
						if x.stays {
							return me, nil
						}
						return 0, ctx.Err()
					}
				}, func(int) { dropped++ })
				if took := time.Since(began); !errors.Is(err, c.err) || err == nil && got != c.want || took != c.took || dropped != c.dropped {
					t.Errorf("got %d, %v after %v, dropped %d; want %d, %v after %v, dropped %d", got, err, took, dropped, c.want, c.err, c.took, c.dropped)
				}
			})
		})
	}
}
