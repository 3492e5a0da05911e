package prompt

import (
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Hints are what a body says about its request for the router alone; workers
// don't need it. Whether to believe it is the reader's to decide. What is not
// there, or is nonsense, is zero.
//
// They stand in nvext.agent_hints, as Dynamo's clients send them, and in a
// cache_control of the body's top level or of nvext, as Anthropic's clients
// write it. One that stands at a single message or tool is not read.
type Hints struct {
	OutputTokens int           // nvext.agent_hints.osl
	Priority     int           // nvext.agent_hints.priority
	CacheTTL     time.Duration // cache_control.ttl: "5m", "1h" or "<N>s"; 5 min where it is left out
}

// maxCacheTTL bounds how long a cache may be said to be of use.
const maxCacheTTL = 24 * time.Hour

// defaultCacheTTL is the life of an ephemeral cache without a ttl
// (docs.anthropic.com, "Prompt caching").
const defaultCacheTTL = 5 * time.Minute

func (r *Request) readHints(s *Scanner, body []byte) {
	if m := s.value(memberNvext, body); m.known && m.raw[0] == '{' {
		_ = eachMember(m.raw, func(name []byte, v jsontext.Value) { // a hint that can't be read is none
			switch string(name) {
			case "agent_hints":
				r.Hints.readAgent(v)
			case "cache_control":
				r.Hints.readCache(v)
			}
		})
	}
	if m := s.value(memberCacheControl, body); m.known {
		r.Hints.readCache(m.raw)
	}
}

func (h *Hints) readAgent(v jsontext.Value) {
	if v.Kind() != '{' {
		return
	}
	_ = eachMember(v, func(name []byte, v jsontext.Value) {
		switch string(name) {
		case "osl":
			h.OutputTokens = max(0, hintedInt(v))
		case "priority":
			h.Priority = hintedInt(v)
		}
	})
}

func (h *Hints) readCache(v jsontext.Value) {
	if v.Kind() != '{' {
		return
	}
	ephemeral, ttl := false, defaultCacheTTL
	_ = eachMember(v, func(name []byte, v jsontext.Value) {
		switch string(name) {
		case "type":
			ephemeral = string(v) == `"ephemeral"`
		case "ttl":
			ttl = cacheTTL(v)
		}
	})
	if ephemeral {
		h.CacheTTL = ttl
	}
}

// cacheTTL reads "5m", "1h" or "<N>s"; 0 for anything else.
func cacheTTL(v jsontext.Value) time.Duration {
	if len(v) < 4 || v[0] != '"' {
		return 0
	}
	text := v[1 : len(v)-1]
	switch string(text) {
	case "5m":
		return 5 * time.Minute
	case "1h":
		return time.Hour
	}
	n, err := strconv.ParseUint(string(text[:len(text)-1]), 10, 32)
	if err != nil || text[len(text)-1] != 's' {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxCacheTTL)
}

// hintedInt reads a whole number, cut to maxCount either way; 0 for anything
// else.
func hintedInt(v jsontext.Value) int {
	if v.Kind() != '0' {
		return 0
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != math.Trunc(f) {
		return 0
	}
	return int(max(-maxCount, min(f, maxCount)))
}
