package prompt

import "testing"

func TestFirstTokenKeyIsTheFirst(t *testing.T) {
	for _, salt := range []string{"", "pepper"} {
		for _, f := range []Form{{BlockTokens: 16}, {BlockTokens: 16, SaltInRoot: true}, {BlockTokens: 64}} {
			r := &Request{Model: "m", Salt: salt, Tokens: make([]uint32, 63)}
			first := r.FirstTokenKey(f)
			if keys := r.TokenKeys(f); len(keys) == 0 && first != 0 || len(keys) > 0 && keys[0] != first {
				t.Errorf("salt %q, %+v: %x of %x", salt, f, first, keys)
			}
		}
	}
}
