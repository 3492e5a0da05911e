package gateway

import "bytes"

// idTap reads the prompt's token ids out of a response that tells them: the
// first array under the name "prompt_token_ids", as vLLM writes it where the
// request has return_token_ids. It holds nothing of the response but the ids.
type idTap struct {
	ids     []uint32
	matched int // bytes of the name that were just seen
	state   idState
	value   uint64 // of the number being read
	digits  int
}

type idState uint8

const (
	idName  idState = iota // looking for the name
	idColon                // behind the name
	idOpen                 // behind the colon
	idList                 // inside the array
	idDone                 // at its end
	idNone                 // what follows is no array of token ids
)

var promptIDsName = []byte(`"prompt_token_ids"`)

// maxTappedIDs bounds the ids that are read: no model's context comes near.
const maxTappedIDs = 1 << 21

// Write never fails and never keeps p.
func (t *idTap) Write(p []byte) {
	for len(p) > 0 && t.state < idDone {
		if t.state == idName && t.matched == 0 {
			i := bytes.IndexByte(p, '"')
			if i < 0 {
				return
			}
			p = p[i:]
		}
		t.step(p[0])
		p = p[1:]
	}
}

func (t *idTap) step(c byte) {
	blank := c == ' ' || c == '\t' || c == '\r' || c == '\n'
	switch t.state {
	case idName:
		switch {
		case c == promptIDsName[t.matched]:
			if t.matched++; t.matched == len(promptIDsName) {
				t.state, t.matched = idColon, 0
			}
		case c == '"':
			t.matched = 1
		default:
			t.matched = 0
		}
	case idColon:
		switch {
		case c == ':':
			t.state = idOpen
		case !blank:
			t.state = idName // the text of something else
		}
	case idOpen:
		switch {
		case c == '[':
			t.state = idList
		case !blank:
			t.state = idName // null, as in all events but the first
		}
	case idList:
		t.inList(c, blank)
	}
}

func (t *idTap) inList(c byte, blank bool) {
	switch {
	case c >= '0' && c <= '9' && t.digits < 10:
		t.value, t.digits = 10*t.value+uint64(c-'0'), t.digits+1
	case c == ',' || c == ']' || blank:
		if t.digits > 0 {
			if t.value > 1<<32-1 || len(t.ids) == maxTappedIDs {
				t.state, t.ids = idNone, nil
				return
			}
			t.ids, t.value, t.digits = append(t.ids, uint32(t.value)), 0, 0
		}
		if c == ']' {
			t.state = idDone
		}
	default:
		t.state, t.ids = idNone, nil
	}
}

// IDs returns what was told; nil for nothing, or not all of it.
func (t *idTap) IDs() []uint32 {
	if t.state != idDone {
		return nil
	}
	return t.ids
}
