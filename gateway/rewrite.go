package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/rhizome-router/rhizome/engine"
	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

// The named rewrites. Each puts bytes behind the body's opening brace, or
// replaces one value's bytes; nothing is encoded anew.
const (
	rewriteUsage       = "usage"
	rewriteRank        = "dp_rank"
	rewriteServedModel = "served_model_name"
	rewriteDecode      = "decode" // of the whole body, its Content-Encoding alone
)

var rewriteNames = []string{rewriteUsage, rewriteRank, rewriteServedModel, rewriteDecode}

// splice is one change: what stands at a place gives way to text.
type splice struct {
	at   prompt.Span
	text string
}

// splicesOf returns the changes to a plain JSON body that the named rewrites
// make for a worker's rank. With usage, strip says that the caller did not ask
// for the event that the change makes the worker send.
func splicesOf(body []byte, p *prompt.Request, names []string, rank int16, whole bool) (out []splice, strip bool) {
	first := bytes.IndexByte(body, '{') + 1
	front := prompt.Span{Start: first, End: first}
	for _, name := range names {
		switch {
		case name == rewriteRank && rank >= 0:
			out = append(out, setNumber("routed_dp_rank", p.RoutedRankAt, front, rank), setNumber("data_parallel_rank", p.RankAt, front, rank))
		case name == rewriteServedModel && p.ModelAt.End > 0:
			quoted, err := json.Marshal(p.Model)
			if err == nil && !bytes.Equal(quoted, body[p.ModelAt.Start:p.ModelAt.End]) {
				out = append(out, splice{p.ModelAt, string(quoted)})
			}
		case name == rewriteUsage && whole && p.Stream && !p.IncludeUsage && (p.Kind == prompt.Chat || p.Kind == prompt.Completion):
			out, strip = append(out, askForUsage(body, p.StreamOptionsAt, front)), true
		}
	}
	slices.SortStableFunc(out, func(a, b splice) int { return a.at.Start - b.at.Start })
	return out, strip
}

// setNumber sets the member of that name, whose value stands at value, or makes
// it at front: of two of one name engines take the last.
func setNumber(name string, value, front prompt.Span, n int16) splice {
	if value.End > 0 {
		return splice{value, strconv.Itoa(int(n))}
	}
	return splice{front, fmt.Sprintf(`"%s":%d,`, name, n)}
}

// askForUsage sets include_usage in the member stream_options, which stands at
// options, or makes that member at front.
func askForUsage(body []byte, options, front prompt.Span) splice {
	value := body[options.Start:options.End]
	if len(value) == 0 {
		return splice{front, `"stream_options":{"include_usage":true},`}
	}
	if value[0] != '{' { // null
		return splice{options, `{"include_usage":true}`}
	}
	inner := options.Start + 1
	asks, comma := prompt.Span{}, ""
	d := decoder(value)
	_, _ = d.ReadToken() // the syntax was checked
	for d.PeekKind() == '"' {
		comma = ","
		name, _ := d.ReadToken()
		found := name.String() == "include_usage"
		v, err := d.ReadValue()
		if err != nil {
			break
		}
		if end := options.Start + int(d.InputOffset()); found { // of several the last counts
			asks = prompt.Span{Start: end - len(v), End: end}
		}
	}
	if asks.End > 0 {
		return splice{asks, "true"}
	}
	return splice{prompt.Span{Start: inner, End: inner}, `"include_usage":true` + comma}
}

// payload is a body as one worker gets it.
type payload struct {
	pieces [][]byte // in memory
	rest   *rest    // what follows them; nil for nothing
	length int64    // bytes of all; -1 when not known yet
	plain  bool     // it is sent without its Content-Encoding
}

// payload returns x's body for a decision: as received, but for the rewrites
// that are on.
func (x *exchange) payload(d *route.Decision) payload {
	p := payload{rest: x.body.rest, length: int64(len(x.body.received))}
	if p.rest != nil {
		p.length = x.r.ContentLength
	}
	var changes []splice
	if len(x.rewrites) > 0 && x.json {
		changes, x.strip = splicesOf(x.body.plain, x.prompt, x.rewrites, d.Target.Rank, p.rest == nil)
	}
	base := x.body.received
	if (len(changes) > 0 || slices.Contains(x.rewrites, rewriteDecode)) && encoded(x.r.Header.Values("Content-Encoding")) {
		base, p.plain, p.length = x.body.plain, true, int64(len(x.body.plain))
	}
	at := 0
	for _, c := range changes {
		p.pieces = append(p.pieces, base[at:c.at.Start], []byte(c.text))
		at = c.at.End
		if p.length >= 0 {
			p.length += int64(len(c.text) - (c.at.End - c.at.Start))
		}
	}
	p.pieces = append(p.pieces, base[at:])
	return p
}

// upload is a payload on its way to a worker. The transport closes it when it
// needs it no more, perhaps while a Read of it waits for the client.
type upload struct {
	mu     sync.Mutex
	pieces [][]byte
	rest   *rest
	// Close does not wait for a Read of rest, which may wait for the client: done
	// is called when both are over.
	reading, closed bool
	done            func()
}

var _ engine.Placed = (*upload)(nil)

func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	if u.rest == nil || len(u.pieces) > 0 || u.closed {
		defer u.mu.Unlock()
		return u.readHeld(p)
	}
	u.reading = true
	u.mu.Unlock()
	u.rest.begun.Store(true)
	n, err := u.rest.Read(p)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reading = false; u.closed {
		u.done()
	}
	return n, err
}

// readHeld reads of what is in memory. It needs mu.
func (u *upload) readHeld(p []byte) (int, error) {
	for len(u.pieces) > 0 && len(u.pieces[0]) == 0 {
		u.pieces = u.pieces[1:]
	}
	switch {
	case u.closed:
		return 0, io.ErrClosedPipe
	case len(u.pieces) > 0:
		n := copy(p, u.pieces[0])
		u.pieces[0] = u.pieces[0][n:]
		return n, nil
	case u.rest == nil:
		return 0, io.EOF
	}
	return 0, nil // the rest comes next
}

// WritePlaced writes what is in memory. Close waits for it, and so does whoever
// wants the memory back.
func (u *upload) WritePlaced(w io.Writer, most int64) (n int64, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return 0, io.ErrClosedPipe
	}
	for len(u.pieces) > 0 && n < most && err == nil {
		p := u.pieces[0]
		p = p[:min(int64(len(p)), most-n)]
		var wrote int
		wrote, err = w.Write(p)
		n += int64(wrote)
		if u.pieces[0] = u.pieces[0][wrote:]; len(u.pieces[0]) == 0 {
			u.pieces = u.pieces[1:]
		}
	}
	return n, err
}

func (u *upload) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.closed = true
		if !u.reading {
			u.done()
		}
	}
	return nil
}
