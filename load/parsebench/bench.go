// Package parsebench measures how long the router takes from a request's bytes
// to the keys of its prompt, against a bare skip over the same bytes by a fast
// reader of JSON.
//
// The central type is [Report]; start reading at [Bench]. bodies.go makes the
// requests. What came of it is in docs/performance.md.
package parsebench

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rhizome-router/rhizome/load/indexbench"
	"github.com/rhizome-router/rhizome/prompt"
)

// Config says what [Bench] measures.
type Config struct {
	// Progress, if set, is told the share done, 0 to 1.
	Progress func(share float64)

	bytes  int // of a body; 0: 1 MiB
	rounds int // of each body; 0: 300
}

// Row is one kind of body. Times are medians, of CPU time where the system
// tells it, so that what else it does counts little.
type Row struct {
	Body  string `json:"body"`
	Bytes int    `json:"bytes"`
	// Parse is from the whole body to the keys of its prompt, of chunks or of
	// blocks of 16 token ids, with memory that another request had before.
	ParseMicros float64 `json:"parse_us"`
	// Skip is jsontext's ReadValue, which finds where the body ends.
	SkipMicros float64 `json:"skip_us"`
	// OfSkip is Parse by Skip: the median of that of each turn, in which they follow
	// one upon the other.
	OfSkip float64 `json:"parse_of_skip"`
	// LastPiece is what is left of Parse once all but the last 64 KiB have come and
	// were read while they came.
	LastPieceMicros float64 `json:"last_piece_us"`
	AllocsPerOp     float64 `json:"allocs_per_op"` // of Parse
}

// Report is what reading requests costs, on one core.
type Report struct {
	Rows []Row `json:"rows"`
	// OfSkip and AllocsPerOp are the largest of all rows.
	OfSkip               float64 `json:"parse_of_skip"`
	AllocsPerOp          float64 `json:"allocs_per_op"`
	CalibrationReadNanos float64 `json:"calibration_read_ns"` // one dependent read of 64 B
	Cores                int     `json:"cores"`
	DurationSeconds      float64 `json:"duration_seconds"`
}

const (
	defaultBytes, defaultRounds = 1 << 20, 300
	pieceBytes                  = 64 << 10
	blockTokens                 = 16
)

// Bench measures on this machine.
func Bench(ctx context.Context, cfg Config) (*Report, error) {
	began := time.Now()
	if cfg.bytes == 0 {
		cfg.bytes, cfg.rounds = defaultBytes, defaultRounds
	}
	r := &Report{Cores: runtime.GOMAXPROCS(0), CalibrationReadNanos: indexbench.ReadNanos()}
	bodies := Bodies(cfg.bytes)
	for i, b := range bodies {
		row, err := measure(ctx, b, cfg.rounds)
		if err != nil {
			return nil, fmt.Errorf("bench reading of %s: %w", b.Name, err)
		}
		r.Rows = append(r.Rows, *row)
		r.OfSkip, r.AllocsPerOp = max(r.OfSkip, row.OfSkip), max(r.AllocsPerOp, row.AllocsPerOp)
		if cfg.Progress != nil {
			cfg.Progress(float64(i+1) / float64(len(bodies)))
		}
	}
	r.DurationSeconds = time.Since(began).Seconds()
	return r, nil
}

func measure(ctx context.Context, b Body, rounds int) (*Row, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var k Keys
	var parse, skip, ratio, last []float64
	skipper := NewSkipper()
	for range rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		from := indexbench.ThreadCPU()
		if err := skipper.Skip(b.JSON); err != nil {
			return nil, err
		}
		skipped := indexbench.ThreadCPU()
		if err := k.Read(b, len(b.JSON), nil); err != nil {
			return nil, err
		}
		parsed := indexbench.ThreadCPU()
		skip, parse = append(skip, micros(skipped-from)), append(parse, micros(parsed-skipped))
		ratio = append(ratio, float64(parsed-skipped)/float64(max(1, skipped-from)))
		if err := k.Read(b, pieceBytes, func() { from = indexbench.ThreadCPU() }); err != nil {
			return nil, err
		}
		last = append(last, micros(indexbench.ThreadCPU()-from))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		if err := k.Read(b, len(b.JSON), nil); err != nil {
			return nil, err
		}
	}
	runtime.ReadMemStats(&after)
	return &Row{Body: b.Name, Bytes: len(b.JSON), ParseMicros: median(parse), SkipMicros: median(skip), OfSkip: median(ratio),
		LastPieceMicros: median(last), AllocsPerOp: float64((after.Mallocs - before.Mallocs) / uint64(rounds))}, nil
}

// Keys reads bodies, one after the other with the same memory. The zero value
// is ready.
type Keys struct {
	scanner prompt.Scanner
	request prompt.Request
}

// Read reads a body in pieces of so many bytes and makes its keys. lastPiece, if
// any, is called before the last piece.
func (k *Keys) Read(b Body, pieceBytes int, lastPiece func()) error {
	k.scanner.Reset()
	for end := pieceBytes; end < len(b.JSON); end += pieceBytes {
		if err := k.scanner.Scan(b.JSON[:end]); err != nil {
			return err
		}
	}
	if lastPiece != nil {
		lastPiece()
	}
	if err := k.scanner.Scan(b.JSON); err != nil {
		return err
	}
	if err := k.scanner.End(); err != nil {
		return err
	}
	if err := k.scanner.Fill(&k.request, b.Kind, b.JSON, nil); err != nil {
		return err
	}
	k.request.ChunkKeys()
	k.request.TokenKeys(prompt.Form{BlockTokens: blockTokens})
	return nil
}

// Skipper skips values as fast as jsontext can: it checks neither that names
// differ nor that text is UTF-8, as the scanner does not.
type Skipper struct {
	decoder *jsontext.Decoder
	buffer  *bytes.Buffer
}

// NewSkipper returns one.
func NewSkipper() *Skipper {
	return &Skipper{decoder: jsontext.NewDecoder(bytes.NewBuffer(nil)), buffer: bytes.NewBuffer(nil)}
}

// Skip finds where the value ends that is body.
func (s *Skipper) Skip(body []byte) error {
	*s.buffer = *bytes.NewBuffer(body) // read where it lies
	s.decoder.Reset(s.buffer, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	_, err := s.decoder.ReadValue()
	return err
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// median returns the middle of values, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
