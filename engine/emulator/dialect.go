package emulator

import (
	"fmt"
	"net/http"

	"github.com/rhizome-router/rhizome/engine/model"
	"github.com/rhizome-router/rhizome/kv"
)

// Engine is which engine a worker stands in for.
type Engine string

// The engines.
const (
	VLLM   Engine = "vllm"
	SGLang Engine = "sglang"
)

// dialect is all that differs between the engines: how they name and announce
// blocks, and what their HTTP servers say. Everything else is shared.
type dialect struct {
	engine   Engine
	version  string         // unless Config.Version gives another
	schedule model.Schedule // unless Config.Schedule gives another
	form     EventForm      // unless Config.EventForm gives another

	// The cache and its events.
	radixTree     bool                // see model.Config.RadixTree
	clearsTiers   bool                // a cache reset empties the lower tiers too
	clearsAtStart bool                // the first batch of a fresh server is an AllBlocksCleared
	replaysTopic  bool                // replayed messages have a topic frame
	media         [kv.NumTiers]string // names of the tiers; empty: it has no such tier
	namer         func(root kv.Key, blockTokens int) namer
	stored        func(b []byte, f EventForm, e stored) []byte
	removed       func(b []byte, f EventForm, hashes []kv.EngineHash, medium string, group uint16) []byte
	tellsGroups   bool // events tell of the blocks of a sliding window

	// HTTP.
	reading    reading
	routes     func(w *Worker, mux *http.ServeMux) // what only this engine has
	ownedBy    string                              // in the list of models
	stopMember string                              // next to a finish_reason
	errorBody  func(e apiError) any
	metrics    metricNames
	series     func(s *series)
}

// dialectOf returns the dialect of an engine; "" means VLLM.
func dialectOf(e Engine) (*dialect, error) {
	switch e {
	case "", VLLM:
		return vllmDialect(), nil
	case SGLang:
		return sglangDialect(), nil
	}
	return nil, fmt.Errorf("emulated worker: engine %q is unknown; use %q or %q", e, VLLM, SGLang)
}
