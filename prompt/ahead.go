package prompt

import (
	"slices"

	"github.com/zeebo/xxh3"
)

// ahead hashes a prompt's pieces while their body arrives, so that little is
// left to do behind its last byte. Which pieces there will be, and where they
// are cut, is known only in the end: what the whole body names as kind, order
// and last of two equal members decides. So this is a guess, that of a body
// which has its parts in the order in which templates render them, and a chunk
// that was guessed wrong is hashed again.
type ahead struct {
	depth   int // how many containers are open around the piece being read; 0 for none
	from    int // where its next chunk starts
	before  int // bytes of chunks so far
	longest int // bytes of the next chunk, at most
	hashes  []hashed
}

// hashed is a piece of a body and its hash.
type hashed struct {
	start, bytes int
	hash         uint64
}

// maxHashed is more than there are chunks of any body that is not made to have
// very many.
const maxHashed = 2 * maxElements

// openPiece notes that a value of m which begins with c is a piece of a prompt.
func (s *Scanner) openPiece(m *member, c byte) {
	a := &s.ahead
	if a.depth > 0 || len(a.hashes) >= maxHashed {
		return
	}
	longest := chunkBytes
	switch depth := len(s.open); s.at {
	case memberTools, memberInstructions:
		if depth != 1 {
			return
		}
	case memberMessages, memberSystem, memberInput:
		// A string in an array of inputs stands for itself, and a string as input
		// has chunks of other sizes for other kinds.
		if isWhole := depth == 1 && c == '"' && s.at == memberSystem; !isWhole && (depth != 2 || c != '{' || len(m.elements) == maxElements) {
			return
		}
	case memberPrompt:
		if c != '"' || len(m.elements) > 1 {
			return
		}
		longest = cutBytes
	default:
		return
	}
	if a.longest < longest || a.before == 0 {
		a.longest = longest
	}
	a.depth, a.from = len(s.open), s.pos
}

// closePiece hashes what is left of the piece that ends where body does.
func (s *Scanner) closePiece(body []byte) {
	s.hashOpen(body)
	if a := &s.ahead; a.from < len(body) {
		a.add(body[a.from:])
	}
	s.ahead.depth = 0
}

// hashOpen hashes the whole chunks of the piece being read.
func (s *Scanner) hashOpen(body []byte) {
	a := &s.ahead
	if a.depth == 0 {
		return
	}
	for {
		a.longest = longestChunk(a.longest, a.before)
		if len(body)-a.from < a.longest {
			return
		}
		a.add(body[a.from : a.from+a.longest])
	}
}

func (a *ahead) add(chunk []byte) {
	a.hashes = append(a.hashes, hashed{a.from, len(chunk), xxh3.Hash(chunk)})
	a.from += len(chunk)
	a.before += len(chunk)
}

// lookup finds up the hashes of pieces, mostly in the order in which they came.
type lookup struct {
	hashes []hashed
	at     int // before it are those that start before what was looked up last
}

// of returns the hash of the bytes of body from start to end.
func (r *lookup) of(body []byte, start, end int) uint64 {
	if r.at > 0 && r.hashes[r.at-1].start >= start {
		r.at, _ = slices.BinarySearchFunc(r.hashes, start, func(h hashed, start int) int { return h.start - start })
	}
	for r.at < len(r.hashes) && r.hashes[r.at].start < start {
		r.at++
	}
	if r.at < len(r.hashes) && r.hashes[r.at].start == start && r.hashes[r.at].bytes == end-start {
		return r.hashes[r.at].hash
	}
	return xxh3.Hash(body[start:end])
}

// longestChunk is how long a chunk may be behind so many bytes, where so many
// were allowed so far.
func longestChunk(longest, before int) int {
	for before >= 2*longChunks*longest {
		longest *= 2
	}
	return longest
}
