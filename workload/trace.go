package workload

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

const (
	// BlockTokens is how many tokens one hash id of a trace stands for.
	BlockTokens = 512

	// MaxLineBytes bounds one line of a trace. A prompt of a million tokens
	// takes about 20 KB.
	MaxLineBytes = 4 << 20

	// MaxRequests bounds a trace, about 700 times the longest one published.
	MaxRequests = 8 << 20

	maxTokens       = 16 << 20
	maxMillis       = 100 * 365 * 24 * 3600 * 1000
	maxNameBytes    = 1024
	excerptOfErrLen = 60
)

// Request is one request of a trace.
type Request struct {
	// At is when it arrives, counted from the trace's own zero.
	At time.Duration
	// InputTokens and OutputTokens are the lengths of prompt and answer.
	// InputTokens is at least 1.
	InputTokens, OutputTokens int
	// HashIDs names the prompt's blocks of [BlockTokens] tokens, the last one
	// possibly partial. One id stands for the whole prefix up to and including
	// its block: equal ids are reusable prefix blocks.
	HashIDs []uint64

	// Session groups the turns of one conversation; empty when the trace does
	// not say.
	Session string
	// Delay is how long after the end of the session's previous turn this one
	// is sent, where the trace gives it; 0 otherwise.
	Delay time.Duration
	// Tenant and Tool are labels some traces carry.
	Tenant, Tool string
}

// FullBlocks returns how many of the request's blocks are complete, that is,
// can ever be reused by a longer prompt.
func (r *Request) FullBlocks() int { return r.InputTokens / BlockTokens }

// A LineError says which line of a trace could not be read, and why.
type LineError struct {
	Line int // counted from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("trace line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// ReadTrace reads a trace of JSON lines in Mooncake's form: `timestamp` (ms),
// `input_length`, `output_length` (tokens) and `hash_ids`; optionally
// `session_id`, `delay` (ms), `tenant` and `tool`. Unknown members are ignored
// and blank lines skipped. A later turn of a session may give a `delay` in
// place of its timestamp; it then arrives that long after the session's turn
// before it.
//
// The result is ordered by arrival; requests of equal arrival keep the file's
// order. A bad line fails the whole read with a *[LineError]. limit > 0 stops
// after that many requests, without looking at the rest.
func ReadTrace(r io.Reader, limit int) ([]Request, error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	lastAt := make(map[string]time.Duration)
	var reqs []Request
	var buf []byte
	for line := 1; limit <= 0 || len(reqs) < limit; line++ {
		var err error
		buf, err = readLine(lines, buf[:0])
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, &LineError{line, err}
		}
		if text := bytes.TrimSpace(buf); len(text) > 0 {
			req, bad := parseLine(text, lastAt)
			if bad != nil {
				return nil, &LineError{line, bad}
			}
			if len(reqs) >= MaxRequests {
				return nil, &LineError{line, fmt.Errorf("more than %d requests: split the trace", MaxRequests)}
			}
			reqs = append(reqs, req)
		}
		if err != nil {
			break
		}
	}
	slices.SortStableFunc(reqs, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	return reqs, nil
}

// readLine appends the next line to buf; io.EOF comes with the last one.
func readLine(r *bufio.Reader, buf []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(buf)+len(part) > MaxLineBytes {
			return buf, fmt.Errorf("longer than %d bytes", MaxLineBytes)
		}
		buf = append(buf, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buf, err
		}
	}
}

// traceLine is the wire form. Numbers that traces write as integers or as
// floats are read as floats and checked.
type traceLine struct {
	Timestamp    *float64        `json:"timestamp"`
	InputLength  *float64        `json:"input_length"`
	OutputLength *float64        `json:"output_length"`
	HashIDs      []uint64        `json:"hash_ids"`
	SessionID    json.RawMessage `json:"session_id"`
	Delay        *float64        `json:"delay"`
	Tenant       string          `json:"tenant"`
	Tool         string          `json:"tool"`
}

func parseLine(text []byte, lastAt map[string]time.Duration) (Request, error) {
	var l traceLine
	if err := json.Unmarshal(text, &l); err != nil {
		return Request{}, fmt.Errorf("not a trace request (%.*q…): %w", excerptOfErrLen, text[:min(len(text), excerptOfErrLen)], err)
	}
	r := Request{HashIDs: l.HashIDs, Tenant: l.Tenant, Tool: l.Tool, Session: sessionName(l.SessionID)}
	var err error
	if r.InputTokens, err = tokenCount("input_length", l.InputLength, 1); err != nil {
		return Request{}, err
	}
	if r.OutputTokens, err = tokenCount("output_length", l.OutputLength, 0); err != nil {
		return Request{}, err
	}
	if want := (r.InputTokens + BlockTokens - 1) / BlockTokens; len(r.HashIDs) != want {
		return Request{}, fmt.Errorf("hash_ids has %d entries, but input_length %d makes %d blocks of %d tokens",
			len(r.HashIDs), r.InputTokens, want, BlockTokens)
	}
	if max(len(r.Session), len(r.Tenant), len(r.Tool)) > maxNameBytes {
		return Request{}, fmt.Errorf("session_id, tenant or tool is longer than %d bytes", maxNameBytes)
	}
	if l.Delay != nil {
		if r.Delay, err = millis("delay", *l.Delay); err != nil {
			return Request{}, err
		}
	}
	before, known := lastAt[r.Session]
	switch {
	case l.Timestamp != nil:
		r.At, err = millis("timestamp", *l.Timestamp)
	case l.Delay != nil && r.Session != "" && known:
		r.At = before + r.Delay
	default:
		err = errors.New("timestamp is missing (only a later turn of a session_id may give a delay instead)")
	}
	if err != nil {
		return Request{}, err
	}
	if r.Session != "" {
		lastAt[r.Session] = r.At
	}
	return r, nil
}

// sessionName accepts a string or a bare number; null and absence are empty.
func sessionName(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func tokenCount(name string, v *float64, least int) (int, error) {
	if v == nil {
		return 0, fmt.Errorf("%s is missing", name)
	}
	if *v != math.Trunc(*v) || *v < float64(least) || *v > maxTokens {
		return 0, fmt.Errorf("%s is %v, want a whole number from %d to %d", name, *v, least, maxTokens)
	}
	return int(*v), nil
}

func millis(name string, v float64) (time.Duration, error) {
	if v < 0 || v > maxMillis {
		return 0, fmt.Errorf("%s is %v ms, want 0 to %.0f", name, v, float64(maxMillis))
	}
	return time.Duration(v * float64(time.Millisecond)), nil
}
