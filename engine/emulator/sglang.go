package emulator

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// sglangDialect is SGLang's, from 0.5.9 on. Its events are batched per run of
// blocks, as since 0.5.14. Copies in host memory are told when a block leaves
// HBM, as write-back does; the real default, write-through, copies earlier.
func sglangDialect() *dialect {
	return &dialect{
		engine: SGLang, version: "0.5.18", schedule: model.PrefillFirst, form: FormArray,
		radixTree: true, clearsTiers: true, clearsAtStart: true,
		media: [kv.NumTiers]string{kv.HBM: "GPU", kv.CPU: "CPU_PINNED"},
		namer: sglangNames, stored: sglangStored, removed: sglangRemoved,
		reading: reading{alwaysPrompts: true, padsMedia: true, dropsTools: true},
		routes:  sglangRoutes, ownedBy: "sglang", stopMember: `,"matched_stop":null`,
		errorBody: func(e apiError) any {
			return struct {
				Object string `json:"object"`
				apiError
			}{"error", e}
		},
		metrics: metricNames{
			prefix: "sglang:", ttft: "time_to_first_token_seconds", itl: "inter_token_latency_seconds", queue: "queue_time_seconds",
			e2e: "e2e_request_latency_seconds", promptSize: "prompt_tokens_histogram", answerSize: "generation_tokens_histogram",
			labels: map[string]string{"engine_type": "unified", "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"},
		},
		series: sglangSeries,
	}
}

// sglangNames chains SHA-256 digests over pages of tokens. They depend on
// nothing else, so all workers name equal blocks alike, before and after a
// restart.
func sglangNames(_ kv.Key, blockTokens int) namer {
	return func(tokens []uint32, x extras) []kv.EngineHash {
		keys := make([]kv.EngineHash, 0, len(tokens)/blockTokens)
		buf := make([]byte, 0, sha256.Size+4*blockTokens)
		if x.salt != "" {
			seed := sha256.Sum256(append([]byte("sglang-cache-salt-v1\x00"), x.salt...))
			buf = append(buf, seed[:]...)
		}
		for i := 0; i+blockTokens <= len(tokens); i += blockTokens {
			for _, t := range tokens[i : i+blockTokens] {
				buf = binary.LittleEndian.AppendUint32(buf, t)
			}
			digest := sha256.Sum256(buf)
			keys = append(keys, kv.EngineHash(binary.BigEndian.Uint64(digest[:])))
			buf = append(buf[:0], digest[:]...)
		}
		return keys
	}
}

const saltKey = "cache_salt"

// sglangStored appends a BlockStored. The salt, if any, is that of every block
// of its sequence.
func sglangStored(b []byte, f EventForm, e stored) []byte {
	n := 6 // members, the type included
	if e.medium != "" {
		n++
	}
	if e.salt != "" {
		n++
	}
	if f == FormArray {
		b = appendString(appendArrayLen(b, n), typeStored)
		b = appendSignedHashes(b, e.hashes)
		b = appendSignedParent(b, e)
		b = appendTokenIDs(b, e.tokens)
		b = appendUint(b, uint64(e.blockTokens))
		b = appendNil(b) // lora_id
		if e.medium != "" {
			b = appendString(b, e.medium)
		}
		if e.salt != "" {
			b = appendString(appendString(appendMapLen(b, 1), saltKey), e.salt)
		}
		return b
	}
	b = appendMapLen(b, n)
	b = appendString(appendString(b, "type"), typeStored)
	b = appendSignedHashes(appendString(b, "block_hashes"), e.hashes)
	b = appendSignedParent(appendString(b, "parent_block_hash"), e)
	b = appendTokenIDs(appendString(b, "token_ids"), e.tokens)
	b = appendUint(appendString(b, "block_size"), uint64(e.blockTokens))
	b = appendNil(appendString(b, "lora_id"))
	if e.medium != "" {
		b = appendString(appendString(b, "medium"), e.medium)
	}
	if e.salt != "" {
		b = appendString(appendString(b, saltKey), e.salt)
	}
	return b
}

// sglangRemoved appends a BlockRemoved.
func sglangRemoved(b []byte, f EventForm, hashes []kv.EngineHash, medium string, _ uint16) []byte {
	if f == FormArray {
		b = appendString(appendArrayLen(b, 3), typeRemoved)
		return appendString(appendSignedHashes(b, hashes), medium)
	}
	b = appendMapLen(b, 3)
	b = appendString(appendString(b, "type"), typeRemoved)
	b = appendSignedHashes(appendString(b, "block_hashes"), hashes)
	return appendString(appendString(b, "medium"), medium)
}

func appendSignedHashes(b []byte, hashes []kv.EngineHash) []byte {
	b = appendArrayLen(b, len(hashes))
	for _, h := range hashes {
		b = appendInt(b, int64(h))
	}
	return b
}

func appendSignedParent(b []byte, e stored) []byte {
	if !e.hasParent {
		return appendNil(b)
	}
	return appendInt(b, int64(e.parent))
}
