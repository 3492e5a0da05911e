package prompt

import "github.com/rhizome-router/rhizome/kv"

// SetTokenKeys records the block keys of one form, for whoever knows them
// without hashing Tokens, as a simulator does. Tokens still gives the prompt's
// length.
func (r *Request) SetTokenKeys(f Form, keys []kv.Key) {
	*r.keysIn(f) = keys
}
