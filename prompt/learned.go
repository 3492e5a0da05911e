package prompt

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/kv"
)

// Class names one way of turning prompts into tokens: workers of the same class
// gave the same token ids for a few fixed chats (see Probes). 0 is none.
type Class uint64

// Learned is what engines told of the tokens of prompts: for the boundaries of
// prompts met before, on one class of workers, how many tokens come before and
// the keys of their blocks. With it a text prompt has exact keys up to the
// deepest boundary that is known, and nobody has to be asked.
//
// An entry counts once two prompts that share the boundary and differ behind it
// were told and agree up to it. A prompt whose told tokens disagree takes the
// entry out, for good.
//
// All methods are safe for concurrent use; they hold one lock for microseconds
// (Learn, of a long prompt, for tens of them).
// Nothing here reads a clock, asks anyone or keeps any text.
type Learned struct {
	mu       sync.Mutex
	maxBytes int64
	entries  map[uint64]*entry
	oldest   *entry // of the list from the least to the most recently used
	newest   *entry
	versions map[Class]version
	forms    []Form // in use
	answers  map[Class]answerTally
	seen     *seen
	stats    LearnedStats

	classChanges atomic.Uint64
}

// version tells apart what was learned of a class before and after it turned
// out to be wrong.
type version struct {
	number   uint32
	bumpedAt clock.Instant
	bumped   bool // in this process
}

// answerTally says how often the tokens before a boundary behind an answer were
// those of the whole prompt. Templates that leave out the thinking of earlier
// turns make others of them: there it is no use to ask.
type answerTally struct{ good, bad int }

// hopeless reports whether asking about such a boundary is no use; once in a
// while it is tried all the same.
func (t answerTally) hopeless() bool { return t.bad >= 4 && t.bad > 8*t.good }

// entry is what is known of one boundary on one class.
type entry struct {
	key    uint64
	class  Class
	state  entryState
	tokens int32  // before the boundary
	prefix uint64 // hash of these
	rest   uint64 // hash of the tokens behind it, as told first
	prompt uint64 // the prompt that was told first
	// parent is the entry that has the blocks before these, 0 for none; it is
	// usable only while its prefix is what it was.
	parent       uint64
	parentTokens int32
	parentPrefix uint64
	blocks       []blockRun

	older, newer *entry
}

// blockRun are the keys, in one form, of the blocks that end behind the
// parent's last whole one and before the boundary.
type blockRun struct {
	form Form
	keys []kv.Key
}

// entryState says what an entry is good for. The values are part of snapshots.
type entryState uint8

const (
	toldOnce entryState = 1 + iota // waits for another prompt to agree
	trusted
	refused // the boundary can't be used: its tokens depend on what follows, or can't be told
)

const (
	defaultLearnedBytes = 256 << 20
	// entryBytes is what an entry takes besides its keys.
	entryBytes = 240
	runBytes   = 48
)

// NewLearned returns one that knows nothing and takes about so many bytes at
// most; 0 means 256 MiB.
func NewLearned(maxBytes int64) *Learned { return newLearned(maxBytes, seenBuckets) }

func newLearned(maxBytes int64, sets int) *Learned {
	if maxBytes == 0 {
		maxBytes = defaultLearnedBytes
	}
	return &Learned{maxBytes: maxBytes, entries: make(map[uint64]*entry), versions: make(map[Class]version), answers: make(map[Class]answerTally), seen: newSeen(sets)}
}

// known is what a request remembers of its look-up in one form.
type known struct {
	class Class
	form  Form
	Known
}

// Known is the leading part of a text prompt whose tokens are known.
type Known struct {
	Keys   []kv.Key // of its whole blocks; shared, not to be changed
	Tokens int      // of it, those of its last block that is not whole too; 0: nothing is known
	Chunks int      // how many of the prompt's Chunks it covers
	Told   bool     // an engine was asked about this very prompt
}

// ClassChanged records that a member's render class is another.
func (l *Learned) ClassChanged() { l.classChanges.Add(1) }

// ClassChanges counts how often one was: while it stays the same, members are of
// the classes that they were of, or of none.
func (l *Learned) ClassChanges() uint64 { return l.classChanges.Load() }

// Find returns what is known of a prompt on workers of a class, in a form: up
// to the deepest boundary that counts. The request remembers it, so that what is
// found here is the same through one decision.
func (l *Learned) Find(r *Request, class Class, form Form) Known {
	form = form.of(r)
	for _, k := range r.known {
		if k.class == class && k.form == form {
			return k.Known
		}
	}
	if l == nil || class == 0 || form.BlockTokens <= 0 {
		return Known{}
	}
	var k Known
	switch {
	case r.told.class == class:
		k = Known{chain(nil, r.Model, r.Salt, r.told.tokens, form), len(r.told.tokens), len(r.chunks), true}
	case len(r.bounds) > 0:
		k = l.find(r, class, form)
	}
	r.known = append(r.known, known{class, form, k})
	return k
}

func (l *Learned) find(r *Request, class Class, form Form) Known {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(r.bounds) - 1; i >= 0; i-- {
		e := l.entries[l.key(class, r.bounds[i].key)]
		if e == nil || e.state != trusted {
			continue
		}
		keys, ok := l.blocksOf(e, form)
		if !ok {
			continue
		}
		l.stats.Hits++
		return Known{Keys: keys, Tokens: int(e.tokens), Chunks: r.bounds[i].chunk + 1}
	}
	l.stats.Misses++
	return Known{}
}

// key names a boundary on a class, as it is at present.
func (l *Learned) key(class Class, boundary uint64) uint64 {
	return mix(boundary, uint64(class), int(l.versions[class].number))
}

// blocksOf returns the keys of all blocks before an entry's boundary, and makes
// the entry and those it rests on the most recently used. One that rests on
// what is no more is taken out.
func (l *Learned) blocksOf(e *entry, form Form) ([]kv.Key, bool) {
	if form.BlockTokens <= 0 {
		return nil, false
	}
	keys := make([]kv.Key, int(e.tokens)/form.BlockTokens)
	for end := len(keys); ; {
		i := e.runOf(form)
		if i < 0 {
			return nil, false
		}
		run := e.blocks[i].keys
		if end -= len(run); end < 0 {
			l.drop(e)
			return nil, false
		}
		copy(keys[end:], run)
		l.use(e)
		if end == 0 && e.parent == 0 {
			return keys, true
		}
		parent := l.parentOf(e)
		if parent == nil {
			l.drop(e)
			return nil, false
		}
		e = parent
	}
}

// parentOf returns the entry that e rests on, if it still is what it was.
func (l *Learned) parentOf(e *entry) *entry {
	p := l.entries[e.parent]
	if p == nil || p.state == refused || p.prefix != e.parentPrefix || p.tokens != e.parentTokens || p.tokens >= e.tokens {
		return nil
	}
	return p
}

// runOf returns which of an entry's runs has a form, or -1.
func (e *entry) runOf(form Form) int {
	for i := range e.blocks {
		if e.blocks[i].form == form {
			return i
		}
	}
	return -1
}

func (e *entry) bytes() int64 {
	n := int64(entryBytes)
	for i := range e.blocks {
		n += runBytes + 8*int64(cap(e.blocks[i].keys))
	}
	return n
}

// put enters e, which is not there yet, as the most recently used, and makes
// room for it.
func (l *Learned) put(e *entry) {
	l.entries[e.key] = e
	l.link(e)
	l.stats.Bytes += e.bytes()
	l.makeRoom(e)
}

// makeRoom takes out the least recently used entries, up to keep, while there
// are more than fit.
func (l *Learned) makeRoom(keep *entry) {
	for l.stats.Bytes > l.maxBytes && l.oldest != keep {
		l.drop(l.oldest)
		l.stats.Evicted++
	}
}

// drop takes e out.
func (l *Learned) drop(e *entry) {
	l.unlink(e)
	delete(l.entries, e.key)
	l.stats.Bytes -= e.bytes()
	switch e.state {
	case trusted:
		l.stats.Trusted--
	case refused:
		l.stats.Unusable--
	}
}

// refuse remembers that e's boundary can't be used; its blocks go.
func (l *Learned) refuse(e *entry, why Refusal) {
	if e.state == refused {
		return
	}
	l.stats.Bytes -= e.bytes()
	if e.state == trusted {
		l.stats.Trusted--
	}
	e.state, e.blocks, e.parent = refused, nil, 0
	l.stats.Bytes += e.bytes()
	l.stats.Refused[why]++
	l.stats.Unusable++
}

func (l *Learned) use(e *entry) {
	if l.newest != e {
		l.unlink(e)
		l.link(e)
	}
}

func (l *Learned) link(e *entry) {
	e.older, e.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = e
	} else {
		l.oldest = e
	}
	l.newest = e
}

func (l *Learned) unlink(e *entry) {
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		l.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		l.newest = e.older
	}
	e.older, e.newer = nil, nil
}

// bumpPause is the least time between two versions of a class: one wrong answer
// makes many requests go wrong at a time.
const bumpPause = time.Minute

// bump forgets all that was learned of a class, since it turned out to be
// wrong, and reports whether it did: not twice within a minute.
func (l *Learned) bump(now clock.Instant, class Class) bool {
	v := l.versions[class]
	if v.bumped && now.Sub(v.bumpedAt) < bumpPause || len(l.versions) >= maxClasses && v == (version{}) {
		return false
	}
	l.versions[class] = version{v.number + 1, now, true}
	for e := l.oldest; e != nil; {
		next := e.newer
		if e.class == class {
			l.drop(e)
		}
		e = next
	}
	l.stats.Bumped++
	return true
}

// maxClasses bounds how many classes have a version of their own.
const maxClasses = 4096

// Fault tells that workers of a class had computed a prompt from token actual
// on, in blocks of so many, although nothing had left their caches: what is
// known of its tokens beyond is wrong. Where that is at or before the first
// boundary known, all that was learned of the class is; it is forgotten.
func (l *Learned) Fault(now clock.Instant, class Class, r *Request, actual, blockTokens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := true
	for i := range r.bounds {
		e := l.entries[l.key(class, r.bounds[i].key)]
		if e == nil || e.state != trusted {
			continue
		}
		switch {
		case int(e.tokens)-int(e.tokens)%max(1, blockTokens) <= actual:
			first = false
		case first:
			if l.bump(now, class) {
				return
			}
			l.refuse(e, Faulty)
		default:
			l.refuse(e, Faulty)
		}
	}
}
