package core

import (
	"errors"
	"fmt"
	"math"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/crdt"
	"github.com/rhizome-router/rhizome/crdt/wire"
	"github.com/rhizome-router/rhizome/kv"
)

// A frame is a msgpack array whose first value is its type:
//
//	numbers    first, ids: the streams that live frames call first, first + 1, …
//	live       number, first, entries, …: pieces of logs (crdt.ReadEntry)
//	page       kind, writer, inc, delta (crdt.ReadDelta)
//	rows       table, key, n, tie, value, …
//	vector     reply, streams, pages, table digests: see vector
//	want       id, next: the log from there on, or a snapshot
//	wantPage   kind, writer, inc, version, deleted
//	wantRows   table
//	piece      id, counted, first, entries: what was asked for
//	snapshot   id, counted, part, parts, bytes (crdt.Stream.Snapshot)
//	lost       id, from, to: does anyone have these batches?
//	denied     id, from, to: not this replica
//	told       topic, words
//
// An id is worker, rank, source, boot. Types and fields are those of one major
// version of the protocol. A later minor version may append fields to frames and
// to what replicas say of themselves, and add kinds of pages, tables and topics:
// who doesn't know them reads over them. It uses what would change the meaning of
// what is there, or a new type of frame or operation, only while all members have
// that version: a peer that sends those to one that doesn't know them is cut off.
type frameType uint8

const (
	frameNumbers frameType = iota + 1
	frameLive
	framePage
	frameRows
	frameVector
	frameWant
	frameWantPage
	frameWantRows
	framePiece
	frameSnapshot
	frameLost
	frameDenied
	frameTold
)

const (
	// MaxFrameBytes bounds a frame.
	MaxFrameBytes = 4 << 20
	// maxNameBytes bounds a replica's name.
	maxNameBytes = 256
	maxInc       = 1 << 32
	maxNumber    = 1 << 32
)

// ErrFrame says that a peer sent what is no frame of this version. The
// connection to it is of no more use.
var ErrFrame = errors.New("not a frame of the mesh")

// Receive takes a frame that a peer sent. On an error, [ErrFrame], the
// connection to the peer is to be closed; what was read before the fault stays.
// Who from is, the caller knows for certain.
func (c *Core) Receive(now clock.Instant, from string, frame []byte) error {
	if c.peers[from] == nil { // membership has not told of it yet
		if len(c.peers) >= c.cfg.Limits.Replicas {
			c.stats.Refused++
			return nil
		}
		c.peer(from).diedAt = now
	}
	p := c.peers[from]
	p.lastFrame = now
	if len(frame) > MaxFrameBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrFrame, len(frame), MaxFrameBytes)
	}
	r := wire.NewReader(frame)
	n := r.Array(1)
	t := frameType(r.Uint(math.MaxUint8))
	if r.Err() == nil {
		c.receive(now, p, t, n-1, r)
	}
	if fields, fixed := frameFields[t]; fixed {
		r.Skip(n - 1 - fields)
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("%w: type %d of %d bytes from %s: %w", ErrFrame, t, len(frame), from, err)
	}
	return nil
}

// frameFields are how many fields this version knows of a type, where they are not
// a list of things alike.
var frameFields = map[frameType]int{
	frameNumbers: 2, framePage: 4, frameVector: 4, frameWant: 5, frameWantPage: 5,
	frameWantRows: 1, framePiece: 7, frameSnapshot: 8, frameLost: 6, frameDenied: 6,
	frameTold: 2,
}

func (c *Core) receive(now clock.Instant, p *peer, t frameType, n int, r *wire.Reader) {
	if want, fixed := frameFields[t]; fixed && n < want {
		r.Fail(fmt.Errorf("%d fields, want %d", n, want))
		return
	}
	switch t {
	case frameNumbers:
		c.readNumbers(p, r)
	case frameLive:
		if n%3 != 0 {
			r.Fail(fmt.Errorf("%d fields", n))
		}
		for range n / 3 {
			c.readLive(now, p, r)
		}
	case framePage:
		k, writer := readPageID(r)
		b := r.Data(MaxFrameBytes)
		if r.Err() != nil || k >= NumKinds {
			return
		}
		d, err := crdt.ReadDelta(b)
		if err != nil {
			r.Fail(err)
			return
		}
		c.takePage(now, p, k, writer, &d)
	case frameRows:
		c.readRows(now, p, n, r)
	case frameVector:
		c.readVector(now, p, r)
	case frameWant:
		c.addTask(p, r, task{stream: readID(r), next: r.Uint(math.MaxUint64 - 1)})
	case frameWantPage:
		k, writer := readPageID(r)
		if at := readPosition(r); k < NumKinds {
			c.addTask(p, r, task{page: &pageID{k, writer}, at: at})
		}
	case frameWantRows:
		if table := Table(r.Uint(math.MaxUint8)); table < NumTables {
			c.addTask(p, r, task{table: table + 1})
		}
	case framePiece:
		c.readPiece(now, p, r)
	case frameSnapshot:
		c.readSnapshot(now, p, r)
	case frameLost, frameDenied:
		id, lost := readID(r), crdt.Range{From: r.Uint(math.MaxUint64 - 1), To: r.Uint(math.MaxUint64 - 1)}
		if r.Err() != nil {
			return
		}
		if t == frameLost {
			c.answerLost(p, id, lost)
		} else {
			c.denied(now, p, id, lost)
		}
	case frameTold:
		c.readTold(now, p, r)
	default:
		r.Fail(fmt.Errorf("unknown type %d", t))
	}
}

func begin(t frameType, fields int) *wire.Writer {
	w := wire.NewWriter(nil)
	w.Array(1 + fields)
	w.Uint(uint64(t))
	return w
}

func putID(w *wire.Writer, id crdt.StreamID) {
	w.Uint(uint64(id.Target.Worker))
	w.Int(int64(id.Target.Rank))
	w.Uint(uint64(id.Source))
	w.Uint(uint64(id.Boot))
}

const idFields = 4

func readID(r *wire.Reader) crdt.StreamID {
	return crdt.StreamID{
		Target: kv.Target{Worker: kv.WorkerID(r.Uint(math.MaxUint64)), Rank: int16(r.Int(kv.NoRank, math.MaxInt16))},
		Source: crdt.Source(r.Uint(numSources - 1)), Boot: kv.Boot(r.Uint(math.MaxUint64)),
	}
}

// readPageID reads a page's kind, which may be one of a later version, and writer.
func readPageID(r *wire.Reader) (Kind, Replica) {
	return Kind(r.Uint(math.MaxUint8)), Replica{r.String(maxNameBytes), r.Uint(maxInc)}
}

func readPosition(r *wire.Reader) crdt.Position {
	return crdt.Position{Version: r.Uint(math.MaxUint64 - 1), Deleted: r.Uint(math.MaxUint64 - 1)}
}

// encodeNumbers tells of numbers that follow each other.
func encodeNumbers(run []number) []byte {
	w := begin(frameNumbers, 2)
	w.Uint(uint64(run[0].n))
	w.Array((idFields + 1) * len(run))
	for _, n := range run {
		putID(w, n.id)
		w.Bool(n.counted)
	}
	return w.Bytes()
}

func (c *Core) readNumbers(p *peer, r *wire.Reader) {
	n := r.Uint(maxNumber)
	for range r.Array(idFields + 1) {
		id, counted := readID(r), r.Bool()
		if r.Err() != nil {
			return
		}
		if len(p.numbers) >= 2*c.cfg.Limits.Streams { // most are of streams that it has closed; it tells the others again
			c.stats.Refused++
			clear(p.numbers)
			p.behind = true
		}
		p.numbers[n] = numbered{id, counted}
		n++
	}
}

func encodeLive(pieces []piece) []byte {
	w := begin(frameLive, 3*len(pieces))
	for _, p := range pieces {
		w.Uint(uint64(p.number))
		w.Uint(p.first)
		w.Data(p.entries)
	}
	return w.Bytes()
}

func (c *Core) readLive(now clock.Instant, p *peer, r *wire.Reader) {
	number, first, entries := r.Uint(maxNumber), r.Uint(math.MaxUint64-1), r.Data(MaxFrameBytes)
	if r.Err() != nil {
		return
	}
	s, ok := p.numbers[number]
	if !ok {
		p.behind = true // the frame that tells it was lost
		return
	}
	c.takeEntries(now, p, s, first, entries, r)
}

func encodePage(k Kind, writer Replica, d *crdt.Delta) []byte {
	w := begin(framePage, 4)
	w.Uint(uint64(k))
	w.String(writer.Name)
	w.Uint(writer.Inc)
	w.Data(d.Append(nil))
	return w.Bytes()
}

func encodeRows(t Table, rows []crdt.Register) []byte {
	w := begin(frameRows, 1+4*len(rows))
	w.Uint(uint64(t))
	for _, row := range rows {
		w.String(row.Key)
		w.Uint(row.N)
		w.Uint(row.Tie)
		w.Data(row.Value)
	}
	return w.Bytes()
}

func (c *Core) readRows(now clock.Instant, p *peer, n int, r *wire.Reader) {
	if n%4 != 1 {
		r.Fail(fmt.Errorf("%d fields", n))
		return
	}
	t := Table(r.Uint(math.MaxUint8))
	for range n / 4 {
		row := crdt.Register{Key: r.String(crdt.MaxKeyBytes), N: r.Uint(math.MaxUint64 - 1), Tie: r.Uint(math.MaxUint64), Value: r.Data(crdt.MaxValueBytes)}
		if r.Err() != nil {
			return
		}
		if t < NumTables {
			c.setRow(now, p, t, row)
		}
	}
}
