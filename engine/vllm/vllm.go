// Package vllm knows what vLLM's KV events have to themselves, in every release
// from 0.9 on, so that they are decoded into operations on the tree of
// prefixes.
//
// The central function is [Decode]: one payload in, one batch of [kv.Op] out.
// How that is done for all engines alike is in kvwire.
package vllm

import (
	"github.com/rhizome-router/rhizome/engine/kvwire"
	"github.com/rhizome-router/rhizome/kv"
)

// Its clear empties the GPU's prefix cache only. A cache salt is one of the
// extra keys, and nothing says which.
var dialect = kvwire.Dialect{
	Engine: "vLLM",
	Stored: []kvwire.Field{kvwire.FieldType, kvwire.FieldHashes, kvwire.FieldParent, kvwire.FieldTokens, kvwire.FieldBlockSize,
		kvwire.FieldLoraID, kvwire.FieldMedium, kvwire.FieldLoraName, kvwire.FieldExtraKeys, kvwire.FieldGroup, kvwire.FieldKind, kvwire.FieldWindow},
	Removed:    []kvwire.Field{kvwire.FieldType, kvwire.FieldHashes, kvwire.FieldMedium, kvwire.FieldGroup},
	Cleared:    []kvwire.Field{kvwire.FieldType, kvwire.FieldMedium},
	ClearTiers: kv.HBM.Mask(),
}

// Decode decodes one batch of a worker that serves model, as
// [kvwire.Dialect.Decode] says.
func Decode(payload []byte, model string) (kvwire.Batch, error) {
	return dialect.Decode(payload, model)
}
