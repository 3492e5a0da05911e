package prompt

import (
	"encoding/json"
	"unicode/utf8"
)

// question returns a body that asks an engine for the tokens of the prompt in
// body, from which r was made, or where at is not below 0 of what is before
// that boundary.
func (r *Request) question(body []byte, at int) []byte {
	out := make([]byte, 0, len(body)+128)
	from := 0
	replace := func(where Span, by []byte) {
		out = append(append(out, body[from:where.Start]...), by...)
		from = where.End
	}
	name, _ := json.Marshal(r.Model) // a string always marshals
	cut := Span{}
	closing := []byte(`"`)
	if at >= 0 {
		cut = Span{r.bounds[at].end, r.promptAt.End}
		if r.Kind == Chat {
			closing = []byte("]")
		} else {
			cut.Start = wholeText(body[:cut.Start], r.promptAt.Start+1)
		}
	}
	nameFirst := r.ModelAt.Start < r.promptAt.Start
	if r.ModelAt.End > 0 && nameFirst {
		replace(r.ModelAt, name)
	}
	if at >= 0 {
		replace(cut, closing)
	}
	if r.ModelAt.End > 0 && !nameFirst {
		replace(r.ModelAt, name)
	}
	end := len(body)
	for end > from && body[end-1] != '}' {
		end--
	}
	out = append(out, body[from:end-1]...)
	out = append(out, `,"stream":false,"stream_options":null`...)
	if r.ModelAt.End == 0 {
		out = append(append(out, `,"model":`...), name...)
	}
	if at >= 0 && r.Kind == Chat {
		out = append(out, `,"add_generation_prompt":false,"continue_final_message":false`...)
	}
	return append(out, '}')
}

// wholeText returns where the last whole character of a JSON string ends that
// starts behind its quote at an offset of b and goes on to b's end.
func wholeText(b []byte, start int) int {
	for i := start; ; {
		n := 1
		switch {
		case i >= len(b):
			return i
		case b[i] == '\\':
			n = 2
			if i+1 < len(b) && b[i+1] == 'u' {
				n = 6
				if i+2 < len(b) && (b[i+2] == 'd' || b[i+2] == 'D') {
					n = 12 // half of a pair, most likely
				}
			}
		case b[i] >= utf8.RuneSelf:
			_, n = utf8.DecodeRune(b[i:])
			if n == 1 && !utf8.FullRune(b[i:]) {
				return i
			}
		}
		if i+n > len(b) {
			return i
		}
		i += n
	}
}
