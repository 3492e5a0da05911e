package emulator

import (
	"fmt"
	"net/http"

	"github.com/rhizome-router/rhizome/kv"
)

// vllmDialect is vLLM's, from 0.22 on.
func vllmDialect() *dialect {
	return &dialect{
		engine: VLLM, version: "0.25.1+emulated", form: FormMap, replaysTopic: true,
		tellsGroups: true, media: [kv.NumTiers]string{kv.HBM: "GPU", kv.CPU: "CPU", kv.Disk: "FS", kv.Remote: "STORAGE", kv.Other: "OTHER"},
		namer: vllmNames, stored: vllmStored, removed: vllmRemoved,
		routes: vllmRoutes, ownedBy: "vllm", stopMember: `,"stop_reason":null`,
		errorBody: func(e apiError) any { return map[string]apiError{"error": e} },
		metrics: metricNames{
			prefix: "vllm:", ttft: "time_to_first_token_seconds", itl: "inter_token_latency_seconds",
			queue: "request_queue_time_seconds", prefill: "request_prefill_time_seconds", decode: "request_decode_time_seconds",
			e2e: "e2e_request_latency_seconds", promptSize: "request_prompt_tokens", answerSize: "request_generation_tokens",
			labels: map[string]string{"engine": "0"},
		},
		series: vllmSeries,
	}
}

// vllmNames chains from a root that is the process's own: processes name equal
// blocks differently, as vLLM's do unless told otherwise.
func vllmNames(root kv.Key, blockTokens int) namer {
	return func(tokens []uint32, x extras) []kv.EngineHash {
		keys := make([]kv.EngineHash, 0, len(tokens)/blockTokens)
		parent := root
		var texts []string
		for i := 0; i+blockTokens <= len(tokens); i += blockTokens {
			texts = texts[:0]
			for _, m := range x.mediaIn(i, i+blockTokens) {
				texts = append(texts, fmt.Sprintf("mm:%s@%d", m.id, m.at))
			}
			if i == 0 && x.salt != "" {
				texts = append(texts, "x:"+x.salt)
			}
			parent = kv.Next(parent, kv.ContentOf(tokens[i:i+blockTokens], texts...))
			keys = append(keys, kv.EngineHash(parent))
		}
		return keys
	}
}

const (
	attentionKind = "full_attention"
	windowKind    = "sliding_window"
)

// vllmStored appends a BlockStored.
func vllmStored(b []byte, f EventForm, e stored) []byte {
	if f == FormArray {
		b = appendString(appendArrayLen(b, 12), typeStored)
		b = appendHashes(b, e.hashes)
		b = appendParent(b, e)
		b = appendTokenIDs(b, e.tokens)
		b = appendUint(b, uint64(e.blockTokens))
		b = appendNil(b) // lora_id
		b = appendString(b, e.medium)
		b = appendNil(b) // lora_name
		b = appendExtraKeys(b, e)
		b = appendUint(b, uint64(e.group)) // group_idx
		if e.group != 0 {
			return appendUint(appendString(b, windowKind), uint64(e.window))
		}
		return appendNil(appendString(b, attentionKind)) // no sliding window
	}
	members := 11
	if e.group != 0 {
		members++
	}
	b = appendMapLen(b, members)
	b = appendString(appendString(b, "type"), typeStored)
	b = appendHashes(appendString(b, "block_hashes"), e.hashes)
	b = appendParent(appendString(b, "parent_block_hash"), e)
	b = appendTokenIDs(appendString(b, "token_ids"), e.tokens)
	b = appendUint(appendString(b, "block_size"), uint64(e.blockTokens))
	b = appendNil(appendString(b, "lora_id"))
	b = appendString(appendString(b, "medium"), e.medium)
	b = appendNil(appendString(b, "lora_name"))
	b = appendExtraKeys(appendString(b, "extra_keys"), e)
	b = appendUint(appendString(b, "group_idx"), uint64(e.group))
	b = appendString(b, "kv_cache_spec_kind")
	if e.group == 0 {
		return appendString(b, attentionKind)
	}
	b = appendString(appendString(b, windowKind), "kv_cache_spec_sliding_window")
	return appendUint(b, uint64(e.window))
}

// appendExtraKeys appends what tells equal tokens apart: for each block the
// media items that reach into it, and a salt in the first one of a sequence.
func appendExtraKeys(b []byte, e stored) []byte {
	b = appendArrayLen(b, len(e.hashes))
	for i := range e.hashes {
		var media []mediaItem
		if e.media != nil {
			media = e.media[i]
		}
		salted := i == 0 && !e.hasParent && e.salt != ""
		n := len(media)
		if salted {
			n++
		}
		if n == 0 {
			b = appendNil(b)
			continue
		}
		b = appendArrayLen(b, n)
		for _, m := range media {
			b = appendInt(appendString(appendArrayLen(b, 2), m.id), int64(m.at))
		}
		if salted {
			b = appendString(b, e.salt)
		}
	}
	return b
}

// vllmRemoved appends a BlockRemoved.
func vllmRemoved(b []byte, f EventForm, hashes []kv.EngineHash, medium string, group uint16) []byte {
	if f == FormArray {
		b = appendString(appendArrayLen(b, 4), typeRemoved)
		b = appendString(appendHashes(b, hashes), medium)
		return appendUint(b, uint64(group))
	}
	b = appendMapLen(b, 4)
	b = appendString(appendString(b, "type"), typeRemoved)
	b = appendHashes(appendString(b, "block_hashes"), hashes)
	b = appendString(appendString(b, "medium"), medium)
	return appendUint(appendString(b, "group_idx"), uint64(group))
}

func vllmRoutes(w *Worker, mux *http.ServeMux) {
	if !w.cfg.NoRender {
		mux.HandleFunc("POST /v1/chat/completions/render", w.render(routeChat))
		mux.HandleFunc("POST /v1/completions/render", w.render(routeCompletion))
	}
	mux.HandleFunc("POST /tokenize", w.tokenize)
	mux.HandleFunc("POST /reset_prefix_cache", w.clearCache)
	mux.HandleFunc("POST /detokenize", w.detokenize("prompt"))
	mux.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(rw http.ResponseWriter, _ *http.Request) {
		writeJSON(rw, map[string]string{"version": w.cfg.Version})
	})
}
