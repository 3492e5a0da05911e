package gateway

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rhizome-router/rhizome/route"
)

// tapWindowBytes is how much of a response the tap holds at most, and
// tapOverlapBytes how much of it stays when the window moves on: what is to be
// found must fit into that.
const (
	tapWindowBytes  = 16 << 10
	tapOverlapBytes = 4 << 10
)

// tap reads the bytes of a response as they pass and learns what the worker
// says about the request: its usage, an error told inside a stream, and
// whether the stream came to its regular end.
//
// It looks for `"usage":{…}` in a sliding window rather than at lines or whole
// documents: inside a JSON string that text would have its quotes escaped, so
// what it finds is a member's name wherever the window was cut. Windows are cut at offsets
// that depend only on how many bytes passed, so the result is the same however
// the bytes were split.
type tap struct {
	sse     bool
	window  []byte // at most tapWindowBytes
	windows int    // how often it moved on
	usage   route.Usage
	failed  bool // the stream holds an error event
	// ending names the events of which one has to be the stream's last; ended
	// says that one has begun. See endingOf.
	ending []string
	ended  bool
}

// maxUsageBytes is more than any usage object takes; it bounds the work that
// senseless ones make.
const maxUsageBytes = 2 << 10

var (
	usageName  = []byte(`"usage"`)
	doneMarker = []byte("[DONE]")
)

// Write never fails and never keeps p.
func (t *tap) Write(p []byte) {
	for len(p) > 0 {
		n := min(len(p), tapWindowBytes-len(t.window))
		t.window = append(t.window, p[:n]...)
		p = p[n:]
		if len(t.window) == tapWindowBytes {
			t.look()
			t.windows++
			t.window = t.window[:copy(t.window, t.window[tapWindowBytes-tapOverlapBytes:])]
		}
	}
}

// Close looks at what is left in the window. The tap's results hold after it.
func (t *tap) Close() { t.look() }

// begun reports whether an event with data has begun: the comments by which a
// server keeps a connection alive before it has a token are none. What is no
// event stream, or can't be read, has begun.
func (t *tap) begun() bool {
	if !t.sse || t.windows > 0 || len(t.window) == 0 {
		return true
	}
	for line := range bytes.SplitSeq(bytes.ReplaceAll(t.window, []byte("\r"), []byte("\n")), []byte("\n")) {
		if bytes.HasPrefix(line, []byte("data")) {
			return true
		}
	}
	return false
}

// Done reports whether the last event so far is the regular end of a stream.
func (t *tap) Done() bool {
	rest, ok := bytes.CutSuffix(bytes.TrimRight(t.window, "\r\n \t"), doneMarker)
	return ok && bytes.HasSuffix(bytes.TrimRight(rest, " "), []byte("data:"))
}

// maxCandidates bounds how many usage objects of one window are read, the last
// ones: the last counts anyway, and senseless bytes must not cost time.
const maxCandidates = 16

// look reads the objects of interest that the window holds.
func (t *tap) look() {
	var ends [maxCandidates]int // offsets behind the name
	n := 0
	for at := 0; ; n++ {
		i := bytes.Index(t.window[at:], usageName)
		if i < 0 {
			break
		}
		at += i + len(usageName)
		ends[n%maxCandidates] = at
	}
	for i := max(0, n-maxCandidates); i < n; i++ {
		t.readUsage(t.window[ends[i%maxCandidates]:])
	}
	if t.sse && !t.failed {
		t.failed = hasErrorEvent(t.window)
	}
	for i := 0; t.sse && !t.ended && i < len(t.ending); i++ {
		t.ended = hasEvent(t.window, t.ending[i])
	}
}

// readUsage reads the value after the name "usage"; what isn't a whole object
// is ignored. Of several the last counts, member by member, so that a stream
// that tells its input first and its output last is read as a whole.
func (t *tap) readUsage(after []byte) {
	value, ok := bytes.CutPrefix(bytes.TrimLeft(after, " \t\r\n"), []byte(":"))
	if !ok {
		return
	}
	value = bytes.TrimLeft(value, " \t\r\n")
	if t.sse { // the value may stand on a data line of its own
		value = bytes.TrimLeft(bytes.TrimPrefix(value, []byte("data:")), " \t")
	}
	if len(value) == 0 || value[0] != '{' {
		return
	}
	value = value[:min(len(value), maxUsageBytes)]
	u := usageObject(value)
	if u.PromptTokens < 0 && u.CompletionTokens < 0 && t.sse {
		u = usageObject(unfold(value))
	}
	if u.PromptTokens < 0 && u.CompletionTokens < 0 {
		return
	}
	if !t.usage.Known {
		t.usage = route.Usage{Known: true, CachedTokens: -1}
	}
	if u.PromptTokens >= 0 {
		t.usage.PromptTokens = u.PromptTokens
	}
	if u.CompletionTokens >= 0 {
		t.usage.CompletionTokens = u.CompletionTokens
	}
	if u.CachedTokens >= 0 {
		t.usage.CachedTokens = u.CachedTokens
	}
}

// usageObject reads the usage object that b starts with, as the OpenAI APIs
// write it and, with other names, the responses and messages APIs. What isn't
// there is -1.
func usageObject(b []byte) route.Usage {
	u := route.Usage{PromptTokens: -1, CompletionTokens: -1, CachedTokens: -1}
	value, err := decoder(b).ReadValue()
	if err != nil {
		return u
	}
	eachMember(value, func(name string, v jsontext.Value) {
		switch name {
		case "prompt_tokens", "input_tokens":
			u.PromptTokens = count(v)
		case "completion_tokens", "output_tokens":
			u.CompletionTokens = count(v)
		case "cache_read_input_tokens":
			u.CachedTokens = count(v)
		case "prompt_tokens_details", "input_tokens_details":
			eachMember(v, func(name string, v jsontext.Value) {
				if name == "cached_tokens" {
					u.CachedTokens = count(v)
				}
			})
		}
	})
	return u
}

func decoder(b []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// eachMember calls f for the members of an object; for any other value it does
// nothing.
func eachMember(object jsontext.Value, f func(name string, v jsontext.Value)) {
	if object.Kind() != '{' {
		return
	}
	d := decoder(object)
	if _, err := d.ReadToken(); err != nil {
		return
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return
		}
		name := token.String()
		v, err := d.ReadValue()
		if err != nil {
			return
		}
		f(name, v)
	}
}

// maxUsageTokens is more than any request has; beyond it a worker talks
// nonsense that must not reach the statistics.
const maxUsageTokens = 1 << 30

// count reads a token count; -1 for anything that is none.
func count(v jsontext.Value) int {
	n, err := strconv.Atoi(string(v))
	if err != nil || n < 0 || n > maxUsageTokens {
		return -1
	}
	return n
}

// unfold joins JSON that an event stream carries in several data lines. No
// raw line break can be inside a JSON string, so nothing else is touched.
func unfold(b []byte) []byte {
	for _, br := range []string{"\r\ndata:", "\ndata:", "\rdata:"} {
		b = bytes.ReplaceAll(b, []byte(br), []byte("\n"))
	}
	return b
}

// errorMarkers are how the data of an event begins that tells an error, in
// OpenAI's APIs and in the Messages API.
var errorMarkers = [][]byte{[]byte(`{"error"`), []byte(`{"type":"error"`), []byte(`{"type": "error"`)}

// hasErrorEvent reports whether a line of the window is an event whose data
// begins with an error object.
func hasErrorEvent(window []byte) bool {
	if !bytes.Contains(window, []byte("error")) {
		return false // nearly always, and found out in one pass
	}
	for _, marker := range errorMarkers {
		for rest := window; ; {
			i := bytes.Index(rest, marker)
			if i < 0 {
				break
			}
			before := bytes.TrimRight(rest[:i], " ")
			if line, ok := bytes.CutSuffix(before, []byte("data:")); ok {
				if len(line) == 0 || line[len(line)-1] == '\n' || line[len(line)-1] == '\r' {
					return true
				}
			}
			rest = rest[i+len(marker):]
		}
	}
	return false
}
