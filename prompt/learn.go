package prompt

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/rhizome-router/rhizome/kv"
)

// Want is what asking an engine about a prompt would bring.
type Want struct {
	// At is the boundary whose position would be learned: the engine is asked
	// for the tokens of what is before it, too. -1: for the whole prompt alone.
	At int
	// Gain says how much it is worth, compared with others: bytes of text that
	// would be known, times how often they were met, for each question asked.
	// 0: nothing is to be learned.
	Gain float64
}

// Questions is how often an engine has to be asked for it.
func (w Want) Questions() int {
	if w.At >= 0 {
		return 2
	}
	return 1
}

const (
	// leastGainBytes is how much text must lie between two boundaries for the
	// second to be learned.
	leastGainBytes = 256
	// headBytes is the length, about 1024 tokens, from which on a head (the
	// tools and leading system messages) is learned when it is met first.
	headBytes = 1024 / defaultTokensPerByte
)

// Note takes down that a prompt was met, and says what should be asked about it
// on workers of a class. A prompt that is sent again because a worker failed is
// not met again.
func (l *Learned) Note(r *Request, class Class) Want {
	want := Want{At: -1}
	if len(r.bounds) == 0 {
		return want
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	covered := 0
	for i := range r.bounds {
		b := &r.bounds[i]
		count := l.seen.count(b.key, true)
		if !b.learnable || class == 0 {
			continue
		}
		text := r.textBytes(i)
		saved := float64(count) * float64(text-covered)
		e := l.entries[l.key(class, b.key)]
		switch {
		case e == nil && b.spoken && l.answers[class].hopeless() && count%16 != 0:
		case e == nil:
			head := i == r.headEnd-1 && text >= headBytes
			if text-covered >= leastGainBytes && (count > 1 || head) && saved/2 > want.Gain {
				want = Want{At: i, Gain: saved / 2}
			}
		case e.state == trusted:
			covered = text
			if !l.inAllForms(e, r) && saved > want.Gain {
				want = Want{At: -1, Gain: saved}
			}
		case e.state == toldOnce && e.prompt != r.whole && saved > want.Gain:
			want = Want{At: -1, Gain: saved}
		}
	}
	return want
}

// Lesson is what an engine told of a prompt.
type Lesson struct {
	Class   Class
	Request *Request
	// Whole are the tokens of the whole prompt.
	Whole []uint32
	// At is the boundary that Part tells of, -1 for none. Part are the tokens of
	// what is before it; Prompted says that a generation prompt was added.
	At       int
	Part     []uint32
	Prompted bool

	chains []blockRun // of Whole, in each form
}

// guardTokens is how much of the tokens before a cut in a plain text may be
// others when the text goes on.
const guardTokens = 16

// Learn takes in what an engine told. What was told before and disagrees is
// taken out; what agrees while the prompt goes on differently comes to count;
// and the boundary At is entered.
func (l *Learned) Learn(t Lesson) {
	r := t.Request
	if t.Class == 0 || len(t.Whole) == 0 {
		return
	}
	for _, form := range l.Forms() {
		form = form.of(r)
		if !slices.ContainsFunc(t.chains, func(c blockRun) bool { return c.form == form }) {
			t.chains = append(t.chains, blockRun{form, chain(nil, r.Model, r.Salt, t.Whole, form)})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	parent := l.verify(&t)
	l.makeRoom(l.newest) // old entries may have grown by another form
	if t.At < 0 || t.At >= len(r.bounds) || l.entries[l.key(t.Class, r.bounds[t.At].key)] != nil {
		return
	}
	e := &entry{key: l.key(t.Class, r.bounds[t.At].key), class: t.Class, state: toldOnce, prompt: r.whole}
	n := t.position()
	good := n > 0 && n < len(t.Whole) && slices.Equal(t.Part[:n], t.Whole[:n])
	l.tally(t.Class, &r.bounds[t.At], good)
	if !good {
		l.put(e)
		l.refuse(e, NotPrefix)
		return
	}
	e.tokens = int32(n)
	e.prefix, e.rest = hashTokens(t.Whole[:n]), hashTokens(t.Whole[n:])
	if parent != nil && parent.tokens < e.tokens && l.inAllForms(parent, r) {
		e.parent, e.parentTokens, e.parentPrefix = parent.key, parent.tokens, parent.prefix
	}
	t.addForms(e, nil)
	l.put(e)
	l.stats.Learned++
}

// tally counts what came of asking about a boundary behind an answer.
func (l *Learned) tally(class Class, b *boundary, good bool) {
	v, known := l.answers[class]
	if !b.spoken || !known && len(l.answers) >= maxClasses {
		return
	}
	if good {
		v.good++
	} else {
		v.bad++
	}
	l.answers[class] = v
}

// addForms gives e its blocks in the forms that it lacks, as far as the entry
// it rests on, if any, has them.
func (t *Lesson) addForms(e, parent *entry) {
	for _, c := range t.chains {
		if e.runOf(c.form) >= 0 || parent != nil && parent.runOf(c.form) < 0 {
			continue
		}
		from, to := int(e.parentTokens)/c.form.BlockTokens, int(e.tokens)/c.form.BlockTokens
		keys := make([]kv.Key, to-from) // no larger than it need be
		copy(keys, c.keys[from:to])
		e.blocks = append(e.blocks, blockRun{c.form, keys})
	}
}

// SetForms says in which forms workers name blocks, at most maxForms of them.
func (l *Learned) SetForms(forms []Form) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forms = slices.Clone(forms[:min(len(forms), maxForms)])
}

// Forms returns them.
func (l *Learned) Forms() []Form {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forms
}

// inAllForms reports whether e has its blocks in all forms in use.
func (l *Learned) inAllForms(e *entry, r *Request) bool {
	for _, form := range l.forms {
		if e.runOf(form.of(r)) < 0 {
			return false
		}
	}
	return true
}

// maxForms bounds the forms that blocks are named in.
const maxForms = 8

// position is how many tokens come before the boundary.
func (t *Lesson) position() int {
	n := len(t.Part)
	if t.Request.Kind != Chat {
		return n - guardTokens
	}
	if t.Prompted {
		// Both end with the generation prompt. They may have more in common before
		// it: then some tokens less are taken to be before the boundary.
		for i := len(t.Whole); n > 0 && i > 0 && t.Part[n-1] == t.Whole[i-1]; i-- {
			n--
		}
	}
	return n
}

// verify holds a whole prompt's tokens against what is known of its boundaries.
// It returns the deepest before At, if any, that agrees.
func (l *Learned) verify(t *Lesson) (parent *entry) {
	var h xxh3.Hasher
	hashed := 0
	for i := range t.Request.bounds {
		e := l.entries[l.key(t.Class, t.Request.bounds[i].key)]
		if e == nil || e.state == refused {
			continue
		}
		n := int(e.tokens)
		if n < hashed || n >= len(t.Whole) {
			l.refuse(e, Contradicted)
			continue
		}
		writeTokens(&h, t.Whole[hashed:n])
		hashed = n
		if h.Sum64() != e.prefix {
			l.refuse(e, Contradicted)
			continue
		}
		if e.parent == 0 {
			l.addForms(t, e, nil)
		} else if p := l.parentOf(e); p != nil {
			l.addForms(t, e, p)
		}
		if e.state == toldOnce && hashTokens(t.Whole[n:]) != e.rest {
			e.state = trusted
			l.stats.Trusted++
			l.stats.Trusts++
		}
		l.use(e)
		if i < t.At {
			parent = e
		}
	}
	return parent
}

// addForms is Lesson.addForms of an entry that is in the map.
func (l *Learned) addForms(t *Lesson, e, parent *entry) {
	l.stats.Bytes -= e.bytes()
	t.addForms(e, parent)
	l.stats.Bytes += e.bytes()
}

// Refuse remembers that nobody tells the tokens of what is before a boundary.
func (l *Learned) Refuse(class Class, r *Request, at int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if class == 0 || at < 0 || at >= len(r.bounds) {
		return
	}
	key := l.key(class, r.bounds[at].key)
	if l.entries[key] == nil {
		e := &entry{key: key, class: class, state: toldOnce, prompt: r.whole}
		l.put(e)
		l.refuse(e, Unrenderable)
	}
}

func hashTokens(tokens []uint32) uint64 {
	var h xxh3.Hasher
	writeTokens(&h, tokens)
	return h.Sum64()
}

func writeTokens(h *xxh3.Hasher, tokens []uint32) {
	var b [1024]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(b)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(b[4*i:], t)
		}
		_, _ = h.Write(b[:4*n]) // a hasher takes everything
		tokens = tokens[n:]
	}
}
