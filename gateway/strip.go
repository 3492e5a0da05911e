package gateway

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// maxHeldEventBytes bounds an event that is held back to see whether it is the
// one to leave out; a longer one is not.
const maxHeldEventBytes = 64 << 10

// usageStripper leaves the extra event with the token counts, which the usage
// rewrite asked for, out of an event stream. All other bytes pass as they are,
// each event when it is whole.
type usageStripper struct {
	held    []byte // the event that has begun
	through bool   // the event is too long to be held: it passes
}

// Write returns what of the stream so far may pass; valid until the next call.
func (s *usageStripper) Write(p []byte) []byte {
	s.held = append(s.held, p...)
	var out []byte
	for {
		n := eventEnd(s.held)
		if n == 0 {
			break
		}
		if s.through || !isUsageEvent(s.held[:n]) {
			out = append(out, s.held[:n]...)
		}
		s.held, s.through = s.held[n:], false
	}
	if s.through || len(s.held) > maxHeldEventBytes {
		// The last bytes stay: they may be the beginning of the event's end.
		keep := min(len(s.held), tailBytes-1)
		out = append(out, s.held[:len(s.held)-keep]...)
		s.held, s.through = append([]byte(nil), s.held[len(s.held)-keep:]...), true
	}
	return out
}

// Close returns what is left when the stream ends.
func (s *usageStripper) Close() []byte { return s.held }

// eventEnd returns the length of the first event in b with the empty line that
// ends it, 0 when that has not come.
func eventEnd(b []byte) int {
	end := 0
	for _, mark := range []string{"\n\n", "\r\r", "\r\n\r\n"} {
		if i := bytes.Index(b, []byte(mark)); i >= 0 && (end == 0 || i+len(mark) < end) {
			end = i + len(mark)
		}
	}
	return end
}

// isUsageEvent reports whether an event's data is a chunk without choices that
// tells the usage.
func isUsageEvent(event []byte) bool {
	data, ok := bytes.CutPrefix(bytes.TrimLeft(event, "\r\n"), []byte("data:"))
	if !ok || !bytes.Contains(data, usageName) {
		return false
	}
	data = bytes.TrimSpace(data)
	if !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return false
	}
	empty, usage := false, false
	eachMember(data, func(name string, v jsontext.Value) {
		switch name {
		case "choices":
			empty = v.Kind() == '[' && len(bytes.TrimSpace(v[1:len(v)-1])) == 0
		case "usage":
			usage = v.Kind() == '{'
		}
	})
	return empty && usage
}
