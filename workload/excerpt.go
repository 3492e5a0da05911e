package workload

import (
	"bytes"
	_ "embed"
	"fmt"
)

// See data/NOTICE for its origin and licence.
//
//go:embed data/mooncake_conversation_500.jsonl
var excerpt []byte

// ExcerptName is how reports name the shipped trace.
const ExcerptName = "mooncake-conversation-500"

// Excerpt returns the trace that ships with the program: the first 500 requests
// (167 s) of Mooncake's published conversation trace. The caller owns the
// result. limit > 0 returns only that many.
func Excerpt(limit int) ([]Request, error) {
	reqs, err := ReadTrace(bytes.NewReader(excerpt), limit)
	if err != nil {
		return nil, fmt.Errorf("read the shipped trace: %w", err)
	}
	return reqs, nil
}
