package kvwire

import (
	"fmt"

	"github.com/rhizome-router/rhizome/kv"
)

// Dialect is what one engine's events have to themselves. All of them send
// BlockStored, BlockRemoved and AllBlocksCleared, as arrays or as maps.
type Dialect struct {
	// Engine is the engine's name, for errors.
	Engine string
	// Stored, Removed and Cleared are the fields of the events' array forms, by
	// position; the tag is at 0. What follows is skipped. The map form needs no
	// such list.
	Stored, Removed, Cleared []Field
	// ClearTiers is what an AllBlocksCleared empties that names no medium.
	ClearTiers kv.TierMask
	// Salted says that the cache salt is told apart from other extra keys: it
	// is then part of the root.
	Salted bool
	// Pairs says that token_ids may hold pairs of a token and the next one.
	Pairs bool
}

// Decode decodes one batch of a worker that serves model. Its ops depend on
// the payload alone; an Insert is always about a group of main attention. An
// error means that nothing of the payload can be used; an event that can't be
// read costs only itself and is counted in BadEvents.
//
// What it allocates is bounded by a small multiple of the payload's length,
// whatever the payload announces.
func (l *Dialect) Decode(payload []byte, model string) (Batch, error) {
	d := decoder{Dialect: l, r: NewReader(payload), model: model}
	d.batch.Rank = -1
	if err := d.decode(); err != nil {
		return Batch{}, fmt.Errorf("decode a batch of %s events of %d bytes: at byte %d: %w", l.Engine, len(payload), d.r.Pos(), err)
	}
	return d.batch, nil
}

type decoder struct {
	*Dialect
	r     Reader
	model string
	batch Batch

	// Chunks that ops take their slices from: most events carry one block, and
	// one allocation each would dominate.
	hashes []kv.EngineHash
	blocks []kv.Block

	tokens []uint32  // scratch: one block
	root   kv.Key    // of what rootOf says
	rootOf [2]string // adapter and salt
	rooted bool
}

func (d *decoder) decode() error {
	if d.r.Kind() == Map {
		return d.mapBatch()
	}
	n, err := d.r.ArrayLen()
	if err != nil {
		return err
	}
	if n < 2 {
		return fmt.Errorf("%w: batch of %d elements, want at least 2", ErrType, n)
	}
	if err := d.timestamp(); err != nil {
		return err
	}
	if err := d.events(); err != nil {
		return err
	}
	if n > 2 {
		if d.batch.Rank, err = ReadRank(&d.r); err != nil {
			return err
		}
	}
	for i := 3; i < n; i++ {
		if err := d.r.Skip(); err != nil {
			return err
		}
	}
	return d.end()
}

// mapBatch decodes the form {type, ts, events, data_parallel_rank}, which some
// forks send.
func (d *decoder) mapBatch() error {
	n, err := d.r.MapLen()
	if err != nil {
		return err
	}
	seen := false
	for range n {
		key, err := d.key()
		if err != nil {
			return err
		}
		switch string(key) {
		case "ts":
			err = d.timestamp()
		case "events":
			if seen {
				return fmt.Errorf("%w: two lists of events", ErrType)
			}
			seen = true
			err = d.events()
		case "data_parallel_rank":
			d.batch.Rank, err = ReadRank(&d.r)
		default:
			err = d.r.Skip()
		}
		if err != nil {
			return err
		}
	}
	if !seen {
		return fmt.Errorf("%w: batch without events", ErrType)
	}
	return d.end()
}

func (d *decoder) timestamp() (err error) {
	if d.r.Nil() {
		return nil
	}
	d.batch.TimestampSeconds, err = d.r.Float()
	return err
}

func (d *decoder) end() error {
	if n := d.r.Len(); n > 0 {
		return fmt.Errorf("%w: %d bytes after the batch", ErrType, n)
	}
	return nil
}

// key reads a map's key; one that is no string is skipped and returned as nil.
func (d *decoder) key() ([]byte, error) {
	if d.r.Kind() != Str {
		return nil, d.r.Skip()
	}
	return d.r.Str()
}

func (d *decoder) events() error {
	n, err := d.r.ArrayLen()
	if err != nil {
		return err
	}
	d.batch.Ops = make([]kv.Op, 0, min(n, 64))
	for range n {
		start := d.r.Pos()
		end, err := d.event()
		if err != nil {
			d.batch.BadEvents++
			d.r.Seek(start)
			if err := d.r.Skip(); err != nil {
				return err // the batch itself is broken: nothing after it can be found
			}
			continue
		}
		d.r.Seek(end)
	}
	return nil
}
