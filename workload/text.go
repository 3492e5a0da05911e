package workload

import "strconv"

const (
	// BytesPerToken is how much text stands for one token. Emulated engines cut
	// text into pieces of this size; real tokenizers come close to it on plain
	// English.
	BytesPerToken = 4

	// BlockBytes is the text of one whole block of [BlockTokens].
	BlockBytes = BlockTokens * BytesPerToken

	// Token ids are drawn from [firstToken, firstToken+tokenCountMask], which
	// lies inside the vocabulary of every model of the last years and above
	// its special tokens.
	firstToken     = 4096
	tokenCountMask = 1<<14 - 1
)

// Text makes prompts out of ids: equal ids give equal text, and equal leading
// ids give equal leading bytes. Different seeds share nothing, so that one
// run's prompts never hit what an earlier run left in a cache. The zero value
// is ready to use.
//
// All text is lower-case ASCII words and blanks: it needs no escaping in JSON.
type Text struct{ Seed uint64 }

// words holds 128 plain words, blank included. Their number is a power of two,
// so that seven random bits choose one.
var words = [128]string{
	"the ", "of ", "and ", "to ", "in ", "is ", "that ", "it ", "for ", "was ", "on ", "are ", "as ", "with ", "his ", "they ",
	"at ", "be ", "this ", "from ", "have ", "or ", "by ", "one ", "had ", "not ", "but ", "what ", "all ", "were ", "when ", "we ",
	"there ", "can ", "an ", "your ", "which ", "their ", "said ", "if ", "do ", "will ", "each ", "about ", "how ", "up ", "out ", "them ",
	"then ", "she ", "many ", "some ", "so ", "these ", "would ", "other ", "into ", "has ", "more ", "her ", "two ", "like ", "him ", "see ",
	"time ", "could ", "no ", "make ", "than ", "first ", "been ", "its ", "who ", "now ", "people ", "my ", "made ", "over ", "did ", "down ",
	"only ", "way ", "find ", "use ", "may ", "water ", "long ", "little ", "very ", "after ", "words ", "called ", "just ", "where ", "most ", "know ",
	"get ", "through ", "back ", "much ", "go ", "good ", "new ", "write ", "our ", "me ", "man ", "too ", "any ", "day ", "same ", "right ",
	"look ", "think ", "also ", "around ", "another ", "came ", "come ", "work ", "three ", "must ", "because ", "does ", "part ", "even ", "place ", "well ",
}

// Append appends the first n bytes of the text of id to dst: a shorter text of
// an id leads every longer one.
func (t Text) Append(dst []byte, id uint64, n int) []byte {
	end := len(dst) + n
	state := t.state(id)
	for len(dst) < end {
		bits := next(&state)
		for range 9 {
			dst = append(dst, words[bits%uint64(len(words))]...)
			bits /= uint64(len(words))
		}
	}
	return dst[:end]
}

// AppendPrompt appends the text of r's prompt: [BlockBytes] for each of its
// blocks, less for a partial last one.
func (t Text) AppendPrompt(dst []byte, r *Request) []byte {
	left := r.InputTokens
	for _, id := range r.HashIDs {
		n := min(left, BlockTokens)
		dst = t.Append(dst, id, n*BytesPerToken)
		left -= n
	}
	return dst
}

// AppendTokens appends the first n token ids of id to dst.
func (t Text) AppendTokens(dst []uint32, id uint64, n int) []uint32 {
	state := t.state(id)
	for range n {
		dst = append(dst, firstToken+uint32(next(&state)&tokenCountMask))
	}
	return dst
}

// AppendPromptTokens appends r's prompt as a JSON array of token ids.
func (t Text) AppendPromptTokens(dst []byte, r *Request) []byte {
	dst = append(dst, '[')
	left := r.InputTokens
	for _, id := range r.HashIDs {
		state := t.state(id)
		for range min(left, BlockTokens) {
			dst = strconv.AppendUint(dst, firstToken+next(&state)&tokenCountMask, 10)
			dst = append(dst, ',')
		}
		left -= min(left, BlockTokens)
	}
	dst[len(dst)-1] = ']'
	return dst
}

// state starts the stream of one id. Seeds and ids are mixed one after the
// other, so that (1, 2) and (2, 1) differ.
func (t Text) state(id uint64) uint64 {
	s := t.Seed
	s = next(&s) ^ id
	return next(&s)
}

// next is SplitMix64.
func next(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
