package prompt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/rhizome-router/rhizome/kv"
)

// A snapshot of what was learned, little-endian. It holds hashes and counts
// alone: no text and no token ids.
//
//	version u32  probesVersion u32
//	classes u32  { class u64  number u32 }
//	{ key, class, parent, prefix, rest, prompt, parentPrefix u64
//	  tokens, parentTokens u32  state u8  runs u8
//	  { blockTokens u32  salted u8  keys u32  { key u64 } } }   to the end
//
// Entries come from the least to the most recently used.
const snapshotVersion = 1

// ErrSnapshot is wrapped by errors about a snapshot that can't be used.
var ErrSnapshot = errors.New("not a snapshot of learned prompts")

// snapshotBatch is how many entries are looked at under the lock at once.
const snapshotBatch = 256

// Snapshot returns what was learned, in maxBytes at most: of more the most
// recently used.
func (l *Learned) Snapshot(maxBytes int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, snapshotVersion)
	b = binary.LittleEndian.AppendUint32(b, probesVersion)
	b = l.appendVersions(b)
	// From the most recently used on until it is enough, then turned round.
	room := maxBytes - len(b)
	var records [][]byte
	for batch := range slices.Chunk(l.keysByUse(), snapshotBatch) {
		for _, e := range l.copies(batch) {
			record := appendEntry(nil, &e)
			if room -= len(record); room < 0 {
				break
			}
			records = append(records, record)
		}
		if room < 0 {
			break
		}
	}
	for _, record := range slices.Backward(records) {
		b = append(b, record...)
	}
	return b
}

// keysByUse returns the keys of all entries, the most recently used first. It
// takes the lock for a moment at a time. An entry that is used meanwhile may be
// named earlier than it was; when the one that is next goes, those behind it,
// which would be the next to go, are not named.
func (l *Learned) keysByUse() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]uint64, 0, len(l.entries))
	named := make(map[uint64]bool, len(l.entries))
	e := l.newest
	for n := 1; e != nil; n++ {
		if !named[e.key] {
			named[e.key] = true
			keys = append(keys, e.key)
		}
		if e = e.older; e != nil && n%(4*snapshotBatch) == 0 {
			l.mu.Unlock()
			l.mu.Lock()
			if l.entries[e.key] != e {
				break
			}
		}
	}
	return keys
}

// copies returns the entries of some keys as they are now. Their blocks are
// shared: a run never changes.
func (l *Learned) copies(keys []uint64) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]entry, 0, len(keys))
	for _, k := range keys {
		if e := l.entries[k]; e != nil {
			c := *e
			c.blocks = slices.Clone(e.blocks)
			out = append(out, c)
		}
	}
	return out
}

func (l *Learned) appendVersions(b []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.versions)))
	for class, v := range l.versions {
		b = binary.LittleEndian.AppendUint64(b, uint64(class))
		b = binary.LittleEndian.AppendUint32(b, v.number)
	}
	return b
}

func appendEntry(b []byte, e *entry) []byte {
	for _, x := range [...]uint64{e.key, uint64(e.class), e.parent, e.prefix, e.rest, e.prompt, e.parentPrefix} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(e.tokens))
	b = binary.LittleEndian.AppendUint32(b, uint32(e.parentTokens))
	b = append(b, byte(e.state), byte(len(e.blocks)))
	for _, run := range e.blocks {
		salted := byte(0)
		if run.form.SaltInRoot {
			salted = 1
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(run.form.BlockTokens))
		b = append(b, salted)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(run.keys)))
		for _, k := range run.keys {
			b = binary.LittleEndian.AppendUint64(b, uint64(k))
		}
	}
	return b
}

// Restore takes in a snapshot. The error wraps ErrSnapshot; nothing is taken of
// a snapshot that has one. What is known already stays.
func (l *Learned) Restore(b []byte) error {
	versions, entries, err := readSnapshot(b)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for class, number := range versions {
		if _, known := l.versions[class]; !known && len(l.versions) < maxClasses {
			l.versions[class] = version{number: number}
		}
	}
	for _, e := range entries {
		if l.entries[e.key] != nil {
			continue
		}
		switch e.state {
		case trusted:
			l.stats.Trusted++
		case refused:
			l.stats.Unusable++
		}
		l.put(e)
	}
	return nil
}

// reader takes numbers off a snapshot; what is behind its end is 0, and bad is
// set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.bad, r.b = true, nil
		return make([]byte, n)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() byte    { return r.take(1)[0] }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func readSnapshot(b []byte) (map[Class]uint32, []*entry, error) {
	r := reader{b: b}
	if v := r.u32(); r.bad || v != snapshotVersion {
		return nil, nil, fmt.Errorf("%w: its version is %d, this program's is %d", ErrSnapshot, v, snapshotVersion)
	}
	if v := r.u32(); r.bad || v != probesVersion {
		return nil, nil, fmt.Errorf("%w: made with probes of version %d, this program's are of %d", ErrSnapshot, v, probesVersion)
	}
	versions := make(map[Class]uint32)
	for n := r.u32(); n > 0 && !r.bad; n-- {
		class := Class(r.u64())
		versions[class] = r.u32()
	}
	var entries []*entry
	for len(r.b) > 0 && !r.bad {
		e, ok := r.entry()
		if !ok {
			return nil, nil, fmt.Errorf("%w: entry %d is impossible", ErrSnapshot, len(entries))
		}
		entries = append(entries, e)
	}
	if r.bad {
		return nil, nil, fmt.Errorf("%w: it is cut off", ErrSnapshot)
	}
	return versions, entries, nil
}

// entry reads one entry; ok is false where it can't have been one.
func (r *reader) entry() (e *entry, ok bool) {
	e = &entry{key: r.u64(), class: Class(r.u64()), parent: r.u64(), prefix: r.u64(), rest: r.u64(), prompt: r.u64(), parentPrefix: r.u64()}
	tokens, parent := r.u32(), r.u32()
	e.state = entryState(r.u8())
	runs := int(r.u8())
	if tokens > maxTokens || parent > tokens || runs > maxForms || e.state < toldOnce || e.state > refused ||
		e.parent == 0 && parent != 0 || e.state == refused && runs > 0 {
		return nil, false
	}
	e.tokens, e.parentTokens = int32(tokens), int32(parent)
	for range runs {
		form := Form{BlockTokens: int(r.u32()), SaltInRoot: r.u8() == 1}
		n := int(r.u32())
		if form.BlockTokens < 1 || form.BlockTokens > maxTokens || e.runOf(form) >= 0 ||
			n != int(tokens)/form.BlockTokens-int(parent)/form.BlockTokens || 8*n > len(r.b) {
			return nil, false
		}
		keys := make([]kv.Key, n)
		for i := range keys {
			keys[i] = kv.Key(r.u64())
		}
		e.blocks = append(e.blocks, blockRun{form, keys})
	}
	return e, !r.bad
}
