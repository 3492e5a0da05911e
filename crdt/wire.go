package crdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/rhizome-router/rhizome/kv"
)

// The wire form of a piece of a log: entries one after the other, of numbers
// that follow each other from one that the envelope names.
//
//	entry        uvarint: 2·ops of a batch, or 2·numbers skipped + 1; then the ops
//	op           head byte, group if opGroup, then by kind
//	  head       kind (2 bits), opGroup, parent form (2 bits) of an Insert, tier (3 bits)
//	  group      uvarint
//	  Insert     parent: LE64 hash or root, nothing for parentLast; uvarint block tokens;
//	             uvarint 2·blocks + native; per block LE64 hash unless native, LE64 content
//	  Also       uvarint count, LE64 hashes
//	  Remove     as Also
//	  Clear      the tiers' mask, a byte
//
// A run is native if its engine's hashes are our keys, as those of an engine
// that takes up our scheme are: they follow from what went before and aren't
// sent. Reading needs nothing but the bytes: no state of the stream.
const (
	opGroup = 1 << 2

	parentHash = 0 // of an Insert: the hash of the block before
	parentRoot = 1
	parentLast = 2 // the last block of the Insert before, in the same batch

	// MaxBatchBytes bounds a batch on the wire: with what is sent beside it, it
	// fits a frame of 4 MiB. A longer one is no batch of an
	// engine: it is refused, and becomes a skip.
	MaxBatchBytes = 4<<20 - 128<<10
	// MaxBatchOps bounds the operations of a batch on the wire: in memory one
	// is some 60 times its shortest form.
	MaxBatchOps = 1 << 16
)

// ErrWire says that bytes aren't a piece of a log.
var ErrWire = errors.New("not a piece of a log")

// AppendEntry appends the wire form of an entry to dst.
func AppendEntry(dst []byte, e Entry) []byte {
	if e.Skipped {
		return binary.AppendUvarint(dst, 2*(e.To-e.From)+1)
	}
	return AppendBatch(dst, e.Ops)
}

// Oversized reports whether a batch is too large to be sent: see MaxBatchBytes
// and MaxBatchOps.
func Oversized(ops []kv.Op) bool {
	if len(ops) > MaxBatchOps {
		return true
	}
	bytes := 10
	for i := range ops {
		bytes += 24 + 16*len(ops[i].Blocks) + 8*len(ops[i].Hashes)
	}
	return bytes > MaxBatchBytes
}

// AppendBatch appends the wire form of a batch to dst.
func AppendBatch(dst []byte, ops []kv.Op) []byte {
	dst = binary.AppendUvarint(dst, 2*uint64(len(ops)))
	var last *kv.Op // Insert with blocks
	for i := range ops {
		op := &ops[i]
		head := byte(op.Kind) | byte(op.Tier)<<5
		if op.Group != 0 {
			head |= opGroup
		}
		form := byte(parentHash)
		if op.Kind == kv.Insert {
			switch {
			case !op.HasParent:
				form = parentRoot
			case last != nil && last.Blocks[len(last.Blocks)-1].Hash == op.Parent:
				form = parentLast
			}
		}
		dst = append(dst, head|form<<3)
		if op.Group != 0 {
			dst = binary.AppendUvarint(dst, uint64(op.Group))
		}
		switch op.Kind {
		case kv.Insert:
			dst = appendRun(dst, op, form)
			if len(op.Blocks) > 0 {
				last = op
			}
		case kv.Clear:
			dst = append(dst, byte(op.Tiers))
		default:
			dst = binary.AppendUvarint(dst, uint64(len(op.Hashes)))
			for _, h := range op.Hashes {
				dst = binary.LittleEndian.AppendUint64(dst, uint64(h))
			}
		}
	}
	return dst
}

func appendRun(dst []byte, op *kv.Op, form byte) []byte {
	switch form {
	case parentHash:
		dst = binary.LittleEndian.AppendUint64(dst, uint64(op.Parent))
	case parentRoot:
		dst = binary.LittleEndian.AppendUint64(dst, uint64(op.Root))
	}
	dst = binary.AppendUvarint(dst, uint64(op.BlockTokens))
	if native(op) {
		dst = binary.AppendUvarint(dst, 2*uint64(len(op.Blocks))+1)
		for _, b := range op.Blocks {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Content))
		}
		return dst
	}
	dst = binary.AppendUvarint(dst, 2*uint64(len(op.Blocks)))
	for _, b := range op.Blocks {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Hash))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Content))
	}
	return dst
}

// native reports whether a run's hashes are our keys.
func native(op *kv.Op) bool {
	key := parentKey(op)
	for _, b := range op.Blocks {
		if key = kv.Next(key, b.Content); kv.EngineHash(key) != b.Hash {
			return false
		}
	}
	return true
}

// parentKey is the key that a native run follows.
func parentKey(op *kv.Op) kv.Key {
	if op.HasParent {
		return kv.Key(op.Parent)
	}
	return op.Root
}

// ReadEntry reads the entry with number from, and returns what follows it. What
// it returns is its own memory. The error is [ErrWire].
func ReadEntry(b []byte, from uint64) (e Entry, rest []byte, err error) {
	r := wireReader{rest: b}
	n := r.uvarint()
	e.Range = Range{from, from}
	switch {
	case r.err != nil:
	case n&1 == 1:
		e.Skipped, e.To = true, from+n/2
		if e.To < from || e.To == endOfLog {
			r.fail(errOrder)
		}
	case n/2 > MaxBatchOps:
		r.fail(fmt.Errorf("a batch of %d operations, at most %d are allowed", n/2, MaxBatchOps))
	default:
		e.Ops = r.ops(n / 2)
	}
	if used := len(b) - len(r.rest); r.err == nil && used > MaxBatchBytes {
		r.fail(fmt.Errorf("a batch of %d bytes, at most %d are allowed", used, MaxBatchBytes))
	}
	if r.err != nil {
		return Entry{}, nil, fmt.Errorf("%w: entry %d, %d bytes from the end: %w", ErrWire, from, len(r.rest), r.err)
	}
	return e, r.rest, nil
}

// wireReader reads what lies in memory; after an error it reads zeros.
type wireReader struct {
	rest []byte
	err  error
}

func (r *wireReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *wireReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail(io.ErrUnexpectedEOF)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *wireReader) byte() byte {
	if len(r.rest) == 0 {
		r.fail(io.ErrUnexpectedEOF)
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *wireReader) uint64() uint64 {
	if len(r.rest) < 8 {
		r.fail(io.ErrUnexpectedEOF)
		return 0
	}
	return take64(&r.rest)
}

// count reads how many things of that many bytes follow, no more than there are
// bytes for.
func (r *wireReader) count(n uint64, bytes int) int {
	if n > uint64(len(r.rest)/bytes) {
		r.fail(io.ErrUnexpectedEOF)
		return 0
	}
	return int(n)
}

func (r *wireReader) ops(n uint64) []kv.Op {
	ops := make([]kv.Op, 0, r.count(n, 2))
	last := -1 // the last Insert with blocks
	for range cap(ops) {
		head := r.byte()
		op := kv.Op{Kind: kv.OpKind(head & 3), Tier: kv.Tier(head >> 5)}
		form := head >> 3 & 3
		if op.Tier >= kv.NumTiers || form > parentLast || form != 0 && op.Kind != kv.Insert {
			r.fail(fmt.Errorf("no op begins with %#x", head))
		}
		if head&opGroup != 0 {
			group := r.uvarint()
			if group == 0 || group > math.MaxUint16 {
				r.fail(errOrder)
			}
			op.Group = uint16(group)
		}
		switch op.Kind {
		case kv.Insert:
			if form == parentLast {
				if last < 0 {
					r.fail(errors.New("no block before the run that follows one"))
					break
				}
				blocks := ops[last].Blocks
				op.HasParent, op.Parent = true, blocks[len(blocks)-1].Hash
			}
			r.run(&op, form)
			if len(op.Blocks) > 0 {
				last = len(ops)
			}
		case kv.Clear:
			op.Tiers = kv.TierMask(r.byte())
		default:
			op.Hashes = make([]kv.EngineHash, r.count(r.uvarint(), 8))
			for i := range op.Hashes {
				op.Hashes[i] = kv.EngineHash(r.uint64())
			}
		}
		if r.err != nil {
			return nil
		}
		ops = append(ops, op)
	}
	return ops
}

func (r *wireReader) run(op *kv.Op, form byte) {
	switch form {
	case parentHash:
		op.HasParent, op.Parent = true, kv.EngineHash(r.uint64())
	case parentRoot:
		op.Root = kv.Key(r.uint64())
	}
	tokens := r.uvarint()
	if tokens > math.MaxUint32 {
		r.fail(errOrder)
	}
	op.BlockTokens = uint32(tokens)
	n := r.uvarint()
	if n&1 == 0 {
		op.Blocks = make([]kv.Block, r.count(n/2, 16))
		for i := range op.Blocks {
			op.Blocks[i] = kv.Block{Hash: kv.EngineHash(r.uint64()), Content: kv.Content(r.uint64())}
		}
		return
	}
	op.Blocks = make([]kv.Block, r.count(n/2, 8))
	key := parentKey(op)
	for i := range op.Blocks {
		content := kv.Content(r.uint64())
		key = kv.Next(key, content)
		op.Blocks[i] = kv.Block{Hash: kv.EngineHash(key), Content: content}
	}
}
