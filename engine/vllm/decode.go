// Package vllm decodes vLLM's KV events, every release from 0.9 on, into
// operations on the tree of prefixes.
//
// The central function is [Decode]: one payload in, one batch of [kv.Op] out,
// and the ops depend on that payload alone. Start reading there; event.go knows
// where the fields stand in the array and the map form, stored.go the rules of
// a BlockStored.
package vllm

import (
	"fmt"

	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/kv"
)

// Decode decodes one batch of a worker that serves model. An error means that
// nothing of the payload can be used; an event that can't be read costs only
// itself and is counted in BadEvents.
//
// What it allocates is bounded by a small multiple of the payload's length,
// whatever the payload announces.
func Decode(payload []byte, model string) (kvwire.Batch, error) {
	d := decoder{r: kvwire.NewReader(payload), model: model}
	d.batch.Rank = -1
	if err := d.decode(); err != nil {
		return kvwire.Batch{}, fmt.Errorf("decode a vLLM batch of %d bytes: at byte %d: %w", len(payload), d.r.Pos(), err)
	}
	return d.batch, nil
}

type decoder struct {
	r     kvwire.Reader
	model string
	batch kvwire.Batch

	// Chunks that ops take their slices from: most events carry one block, and
	// one allocation each would dominate.
	hashes []kv.EngineHash
	blocks []kv.Block

	tokens []uint32 // scratch: one block
	root   kv.Key   // of the adapter that rootOf says
	rootOf string
	rooted bool
}

func (d *decoder) decode() error {
	if d.r.Kind() == kvwire.Map {
		return d.mapBatch()
	}
	n, err := d.r.ArrayLen()
	if err != nil {
		return err
	}
	if n < 2 {
		return fmt.Errorf("%w: batch of %d elements, want at least 2", kvwire.ErrType, n)
	}
	if err := d.timestamp(); err != nil {
		return err
	}
	if err := d.events(); err != nil {
		return err
	}
	if n > 2 {
		if d.batch.Rank, err = kvwire.ReadRank(&d.r); err != nil {
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
				return fmt.Errorf("%w: two lists of events", kvwire.ErrType)
			}
			seen = true
			err = d.events()
		case "data_parallel_rank":
			d.batch.Rank, err = kvwire.ReadRank(&d.r)
		default:
			err = d.r.Skip()
		}
		if err != nil {
			return err
		}
	}
	if !seen {
		return fmt.Errorf("%w: batch without events", kvwire.ErrType)
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
		return fmt.Errorf("%w: %d bytes after the batch", kvwire.ErrType, n)
	}
	return nil
}

// key reads a map's key; one that is no string is skipped and returned as nil.
func (d *decoder) key() ([]byte, error) {
	if d.r.Kind() != kvwire.Str {
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
