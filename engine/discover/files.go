package discover

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/clock"
)

// filePoll is how often a file is looked at. A change is taken up when two
// looks in a row saw the same: a file that is being written is left alone.
const filePoll = 500 * time.Millisecond

// fileSource is one file with a list of workers.
type fileSource struct {
	path  string
	clock clock.Clock
}

// run looks at the file, by its content, until ctx ends. What can't be read, or
// isn't a whole list, keeps the list before and is told once.
func (s *fileSource) run(ctx context.Context, sink Sink) {
	var seen, taken uint64
	first := true
	for ctx.Err() == nil {
		text, err := readBounded(s.path)
		now := xxh3.Hash(text)
		if err != nil {
			now = xxh3.HashString("error: " + err.Error())
		}
		if now != taken && (now == seen || first) {
			taken = now
			s.take(text, err, sink)
		}
		seen, first = now, false
		if s.clock.Sleep(ctx, filePoll) != nil {
			return
		}
	}
}

func (s *fileSource) take(text []byte, err error, sink Sink) {
	if err != nil {
		sink.Failed(fmt.Errorf("read a list of workers: %w", err))
		return
	}
	specs, err := ParseList(text)
	if err != nil {
		sink.Failed(fmt.Errorf("%s: %w", s.path, err))
		return
	}
	found := make([]Found, len(specs))
	for i, spec := range specs {
		found[i].Spec = spec
	}
	sink.Found(found)
}

// readBounded reads a file of at most MaxListBytes, and one byte more of a
// longer one.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxListBytes+1))
}

// Sources returns those of a configuration but for Kubernetes, which its own
// package knows how to ask.
func (c Config) Sources(resolver Resolver, time clock.Clock) []Source {
	c = c.WithDefaults()
	var all []Source
	for _, path := range c.Files {
		s := &fileSource{path, time}
		all = append(all, Source{Name: "file:" + path, Settings: path, Run: s.run})
	}
	for _, d := range c.DNS {
		s := &dnsSource{d, resolver, time}
		all = append(all, Source{Name: "dns:" + d.key(), Settings: d, Run: s.run})
	}
	return all
}
