package lease

import (
	"errors"
	"fmt"
	"math"

	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/kv"
)

// A proposal is a msgpack array: name, inc, no, commands. A command's fields
// follow its kind:
//
//	acquire     key, gen, index (of the token it expects), worker, rank, boot, owner
//	renew       key, gen, index
//	revoke      key, gen, index, from
//	fence       name, inc
//	checkpoint  lows: name, inc, ticket, …; marks: worker, rank, source, boot, W, skips, digest, …
//	generation  gen, cluster, from
//	bring       key, gen, index, worker, rank, boot, owner, cluster
//	ended       cluster, gen, index
const (
	maxNameBytes  = 256
	maxCommands   = 1 << 14
	maxLows       = 1 << 10
	maxMarks      = 1 << 16
	maxSource     = math.MaxUint8
	maxProposal   = 1 << 20
	proposalParts = 4
)

// ErrProposal says that bytes aren't a proposal of this version.
var ErrProposal = errors.New("not a proposal")

// Append appends p's wire form to dst.
func (p *Proposal) Append(dst []byte) []byte {
	w := wire.NewWriter(dst)
	w.Array(proposalParts)
	putOrigin(w, p.From)
	w.Uint(p.No)
	n := 0
	for i := range p.Commands {
		n += 1 + fields[p.Commands[i].Kind]
	}
	w.Array(n)
	for i := range p.Commands {
		p.Commands[i].put(w)
	}
	return w.Bytes()
}

// fields is how many values follow each kind.
var fields = [numKinds]int{Acquire: 7, Renew: 3, Revoke: 4, Fence: 2, Checkpoint: 2, Generation: 3, Bring: 8, Ended: 3}

func (c *Command) put(w *wire.Writer) {
	w.Uint(uint64(c.Kind))
	switch c.Kind {
	case Acquire, Renew, Revoke, Bring:
		w.Data(c.Key[:])
		putToken(w, c.Expect)
		if c.Kind == Acquire || c.Kind == Bring {
			putHolder(w, c.Holder)
			w.Uint(c.Owner)
		}
		switch c.Kind {
		case Bring:
			w.Uint(uint64(c.Cluster))
		case Revoke:
			w.Uint(c.From)
		}
	case Fence:
		putOrigin(w, c.Origin)
	case Checkpoint:
		w.Array(3 * len(c.Lows))
		for _, l := range c.Lows {
			putOrigin(w, l.Origin)
			w.Uint(l.Ticket)
		}
		w.Array(7 * len(c.Marks))
		for _, m := range c.Marks {
			putHolder(w, Holder{m.Stream.Target, m.Stream.Boot})
			w.Uint(uint64(m.Stream.Source))
			w.Uint(m.Mark.W)
			w.Uint(m.Mark.Skips)
			w.Uint(m.Mark.Digest)
		}
	case Generation:
		w.Uint(c.Gen)
		w.Uint(uint64(c.Cluster))
		w.Uint(c.From)
	case Ended:
		w.Uint(uint64(c.Cluster))
		putToken(w, c.Expect)
	}
}

// ReadProposal reads what Append wrote, all of b. The error is [ErrProposal].
func ReadProposal(b []byte) (p Proposal, err error) {
	if len(b) > maxProposal {
		return Proposal{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrProposal, len(b), maxProposal)
	}
	r := wire.NewReader(b)
	if n := r.Array(1); n != proposalParts {
		r.Fail(fmt.Errorf("%d fields, want %d", n, proposalParts))
	}
	p.From, p.No = readOrigin(r), r.Uint(math.MaxUint64)
	for left := r.Array(1); left > 0 && r.Err() == nil; {
		if len(p.Commands) == maxCommands {
			r.Fail(fmt.Errorf("more than %d commands", maxCommands))
			break
		}
		c := readCommand(r)
		if left -= 1 + fields[c.Kind]; left < 0 {
			r.Fail(errors.New("a command is cut off"))
		}
		p.Commands = append(p.Commands, c)
	}
	if err := r.End(); err != nil {
		return Proposal{}, fmt.Errorf("%w: %d of %d bytes from the end: %w", ErrProposal, r.Left(), len(b), err)
	}
	return p, nil
}

func readCommand(r *wire.Reader) (c Command) {
	c.Kind = Kind(r.Uint(uint64(numKinds) - 1))
	switch c.Kind {
	case Acquire, Renew, Revoke, Bring:
		c.Key, c.Expect = readKey(r), readToken(r)
		if c.Kind == Acquire || c.Kind == Bring {
			c.Holder, c.Owner = readHolder(r), r.Uint(math.MaxUint64)
		}
		switch c.Kind {
		case Bring:
			c.Cluster = Cluster(r.Uint(math.MaxUint64))
		case Revoke:
			c.From = r.Uint(math.MaxUint64)
		}
	case Fence:
		c.Origin = readOrigin(r)
	case Checkpoint:
		for range min(r.Array(3), maxLows) {
			c.Lows = append(c.Lows, Low{readOrigin(r), r.Uint(math.MaxUint64)})
		}
		for range min(r.Array(7), maxMarks) {
			h := readHolder(r)
			c.Marks = append(c.Marks, StreamMark{
				crdt.StreamID{Target: h.Target, Boot: h.Boot, Source: crdt.Source(r.Uint(maxSource))},
				crdt.Mark{W: r.Uint(math.MaxUint64), Skips: r.Uint(math.MaxUint64), Digest: r.Uint(math.MaxUint64)},
			})
		}
	case Generation:
		c.Gen, c.Cluster, c.From = r.Uint(math.MaxUint32), Cluster(r.Uint(math.MaxUint64)), r.Uint(math.MaxUint64)
	case Ended:
		c.Cluster, c.Expect = Cluster(r.Uint(math.MaxUint64)), readToken(r)
	default:
		r.Fail(fmt.Errorf("unknown command %d", c.Kind))
	}
	return c
}

func putOrigin(w *wire.Writer, o Origin) {
	w.String(o.Name)
	w.Uint(o.Inc)
}

func readOrigin(r *wire.Reader) Origin {
	return Origin{r.String(maxNameBytes), r.Uint(math.MaxUint32)}
}

func putToken(w *wire.Writer, t Token) {
	w.Uint(t.Gen)
	w.Uint(t.Index)
}

func readToken(r *wire.Reader) Token { return Token{r.Uint(math.MaxUint32), r.Uint(math.MaxUint64)} }

func putHolder(w *wire.Writer, h Holder) {
	w.Uint(uint64(h.Target.Worker))
	w.Int(int64(h.Target.Rank))
	w.Uint(uint64(h.Boot))
}

func readHolder(r *wire.Reader) Holder {
	return Holder{kv.Target{Worker: kv.WorkerID(r.Uint(math.MaxUint64)), Rank: int16(r.Int(kv.NoRank, math.MaxInt16))}, kv.Boot(r.Uint(math.MaxUint64))}
}

func readKey(r *wire.Reader) (k Key) {
	if b := r.Data(len(k)); len(b) == len(k) {
		copy(k[:], b)
	} else {
		r.Fail(fmt.Errorf("a key of %d bytes, want %d", len(b), len(k)))
	}
	return k
}
