package prompt

// Scanner reads a JSON body while it arrives: each byte is looked at once,
// checked, and never copied. It notes where the members of the one top-level
// object are that routing needs. The zero value is ready; it is not safe for
// concurrent use.
type Scanner struct {
	pos   int // bytes read so far
	state scanState
	open  []byte // the containers that are open, '{' or '['
	err   error

	literal string // what is left of true, false or null
	hex     int    // digits left of a \u escape
	isKey   bool   // the string is a member's name
	keyFrom int    // where the last name started
	from    int    // where the last string that is a value started
	media   []Span // the strings that are data: URLs, without their quotes
	isRole  bool   // the value read next is a message's role

	other  bool   // the top-level member being read is one of others
	others []Span // top-level members, with their names, that may change how a prompt is rendered

	ahead ahead // what of the prompt is hashed already

	at      int // the top-level member being read, as an index of wanted; -1 for others
	members [len(wanted)]member
}

// maxDepth bounds how deep a body may nest.
const maxDepth = 10000

type scanState uint8

const (
	start        scanState = iota // the opening brace of the body
	value                         // a value
	valueOrEnd                    // the first value of an array, or its end
	key                           // a name
	keyOrEnd                      // the first name of an object, or its end
	colon                         // the colon behind a name
	after                         // what follows a value: a comma or an end
	text                          // inside a string
	escape                        // behind a backslash
	escapeHex                     // the digits of \u
	literal                       // inside true, false or null
	minus                         // behind a number's sign
	zero                          // behind a leading zero
	digits                        // digits before the point
	point                         // behind the point
	fraction                      // digits behind the point
	exponent                      // behind the e
	exponentSign                  // behind the e's sign
	power                         // digits of the exponent
	done                          // behind the body's object
)

// Scan reads what is new in body, which is what has arrived so far and holds
// all that earlier calls were given. The error is a [*SyntaxError]; once there
// is one it stays.
func (s *Scanner) Scan(body []byte) error {
	for s.err == nil && s.pos < len(body) {
		switch s.state {
		case text:
			s.skipText(body)
		case digits:
			s.skipNumbers(body)
		}
		if s.pos == len(body) {
			break
		}
		if msg := s.step(body[s.pos], body); msg != "" {
			s.err = &SyntaxError{int64(s.pos), msg}
			break
		}
		s.pos++
		s.skipBetween(body)
	}
	s.hashOpen(body)
	return s.err
}

// Reset makes s ready for another body. It keeps its memory.
func (s *Scanner) Reset() {
	old := *s
	*s = Scanner{open: old.open[:0], media: old.media[:0], others: old.others[:0], ahead: ahead{hashes: old.ahead.hashes[:0]}}
	for i := range s.members {
		s.members[i] = old.members[i].emptied()
	}
}

// End tells that the body is whole.
func (s *Scanner) End() error {
	if s.err == nil && s.state != done {
		s.err = &SyntaxError{int64(s.pos), "the body ends too early"}
	}
	return s.err
}

// step reads one byte; a message says what is wrong with it.
func (s *Scanner) step(c byte, body []byte) string {
	if s.state >= zero && s.state <= power && s.state != point && s.state != exponent && s.state != exponentSign {
		if s.number(c) {
			return ""
		}
		s.ended(s.pos, body) // the byte behind a number is looked at as such
	}
	switch s.state {
	case text:
		return s.inText(c, body)
	case escape:
		switch {
		case isShortEscape(c):
			s.state = text
		case c == 'u':
			s.state, s.hex = escapeHex, 4
		default:
			return "an escape that JSON does not know"
		}
		return ""
	case escapeHex:
		if !isHex(c) {
			return "want a hexadecimal digit"
		}
		if s.hex--; s.hex == 0 {
			s.state = text
		}
		return ""
	case literal:
		if c != s.literal[0] {
			return "want true, false or null"
		}
		if s.literal = s.literal[1:]; s.literal == "" {
			s.ended(s.pos+1, body)
		}
		return ""
	case minus, point, exponent, exponentSign:
		return s.needDigit(c)
	}
	switch c {
	case ' ', '\t', '\r', '\n':
		return ""
	}
	return s.structure(c, body)
}

// structure reads a byte between values.
func (s *Scanner) structure(c byte, body []byte) string {
	switch s.state {
	case start:
		if c != '{' {
			return "the body must be a JSON object"
		}
		s.push(c)
	case colon:
		if c != ':' {
			return "want a colon behind the name"
		}
		s.state = value
	case key, keyOrEnd:
		switch {
		case c == '"':
			s.isKey, s.state, s.keyFrom = true, text, s.pos
		case c == '}' && s.state == keyOrEnd:
			s.pop(body)
		default:
			return "want a member's name"
		}
	case after:
		inObject := s.open[len(s.open)-1] == '{'
		switch {
		case c == ',' && inObject:
			s.state = key
		case c == ',':
			s.state = value
		case c == '}' && inObject, c == ']' && !inObject:
			s.pop(body)
		case inObject:
			return "want a comma or }"
		default:
			return "want a comma or ]"
		}
	case done:
		return "data after the JSON object"
	default:
		if c == ']' && s.state == valueOrEnd {
			s.pop(body)
			return ""
		}
		return s.begin(c)
	}
	return ""
}

// begin reads the first byte of a value.
func (s *Scanner) begin(c byte) string {
	s.began(c)
	s.isRole = s.isRole && c == '"'
	switch {
	case c == '"':
		s.isKey, s.state, s.from = false, text, s.pos+1
	case c == '{', c == '[':
		if len(s.open) == maxDepth {
			return "nested too deep"
		}
		s.push(c)
	case c == '-':
		s.state = minus
	case c == '0':
		s.state = zero
	case c >= '1' && c <= '9':
		s.state = digits
	case c == 't':
		s.state, s.literal = literal, "rue"
	case c == 'f':
		s.state, s.literal = literal, "alse"
	case c == 'n':
		s.state, s.literal = literal, "ull"
	default:
		return "want a value"
	}
	return ""
}

func (s *Scanner) push(c byte) {
	s.open = append(s.open, c)
	s.state = valueOrEnd
	if c == '{' {
		s.state = keyOrEnd
	}
}

func (s *Scanner) pop(body []byte) {
	s.open = s.open[:len(s.open)-1]
	s.ended(s.pos+1, body)
}

func (s *Scanner) inText(c byte, body []byte) string {
	switch {
	case c == '\\':
		s.state = escape
	case c < 0x20:
		return "a control character in a string"
	case !s.isKey:
		if s.pos > s.from && body[s.from] == 'd' && len(s.media) < maxElements && isMedia(body[s.from:s.pos]) {
			s.media = append(s.media, Span{s.from, s.pos})
		}
		if s.isRole {
			s.noteRole(body[s.from:s.pos])
		}
		s.ended(s.pos+1, body)
	default:
		s.state = colon
		s.named(body[s.keyFrom : s.pos+1])
	}
	return ""
}

// named notes what a member's name, in quotes, says of its value.
func (s *Scanner) named(quoted []byte) {
	switch len(s.open) {
	case 1:
		s.at = indexOf(quoted)
		if s.other = s.at < 0 && !irrelevant(quoted); s.other {
			s.others = append(s.others, Span{Start: s.keyFrom})
		}
	case messageDepth:
		s.isRole = s.at == memberMessages && string(quoted) == `"role"`
	case partDepth:
		if s.at == memberMessages && isMediaName(quoted) {
			s.noteItem()
		}
	}
}

// number reads a byte of a number that could end here; false when it has.
func (s *Scanner) number(c byte) bool {
	digit := c >= '0' && c <= '9'
	switch {
	case digit && s.state != zero:
	case c == '.' && (s.state == zero || s.state == digits):
		s.state = point
	case (c == 'e' || c == 'E') && s.state != power:
		s.state = exponent
	default:
		return false
	}
	return true
}

func (s *Scanner) needDigit(c byte) string {
	switch {
	case (c == '+' || c == '-') && s.state == exponent:
		s.state = exponentSign
	case c < '0' || c > '9':
		return "want a digit"
	case s.state == minus && c == '0':
		s.state = zero
	case s.state == minus:
		s.state = digits
	case s.state == point:
		s.state = fraction
	default:
		s.state = power
	}
	return ""
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
