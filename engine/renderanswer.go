package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// renderAnswer is what is read of the answers that tell token ids. Each has one
// of the first three members: vLLM's /render, the same up to early 2026, and
// /tokenize of both engines.
type renderAnswer struct {
	TokenIDs       []uint32        `json:"token_ids"`
	PromptTokenIDs []uint32        `json:"prompt_token_ids"`
	Tokens         json.RawMessage `json:"tokens"`
	Features       *mediaFeatures  `json:"features"`
	mediaFeatures                  // of the early form
}

// mediaFeatures says by kind of media which items there are and where.
type mediaFeatures struct {
	Hashes       map[string][]string     `json:"mm_hashes"`
	Placeholders map[string][]mediaRange `json:"mm_placeholders"`
}

type mediaRange struct{ Offset, Length int }

// parseRendered reads an answer of one prompt.
func parseRendered(body []byte) (Rendered, error) {
	body, err := onlyPrompt(body)
	if err != nil {
		return Rendered{}, err
	}
	var a renderAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return Rendered{}, err
	}
	ids := a.TokenIDs
	if ids == nil {
		ids = a.PromptTokenIDs
	}
	if ids == nil && a.Tokens != nil {
		if ids, err = tokensOf(a.Tokens); err != nil {
			return Rendered{}, err
		}
	}
	if ids == nil {
		return Rendered{}, errors.New("it holds no token ids")
	}
	if len(ids) > maxRenderTokens {
		return Rendered{}, fmt.Errorf("%d token ids, at most %d are read", len(ids), maxRenderTokens)
	}
	features := &a.mediaFeatures
	if a.Features != nil {
		features = a.Features
	}
	media, err := features.spans(len(ids))
	return Rendered{Tokens: ids, Media: media}, err
}

// onlyPrompt returns the object that tells of the one prompt. vLLM's
// /v1/completions/render gives a list, one element for each prompt; early
// releases gave [messages, prompts] for a chat.
func onlyPrompt(body []byte) ([]byte, error) {
	for range 3 {
		if body = bytes.TrimSpace(body); len(body) == 0 || body[0] != '[' {
			return body, nil
		}
		var list []json.RawMessage
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		switch {
		case len(list) == 1:
			body = list[0]
		case len(list) == 2 && list[1][0] == '[':
			body = list[1]
		default:
			return nil, fmt.Errorf("it tells of %d prompts; ask for one at a time", len(list))
		}
	}
	return nil, errors.New("lists in lists")
}

// tokensOf reads a list of ids, or a list that holds one such list.
func tokensOf(raw json.RawMessage) ([]uint32, error) {
	var ids []uint32
	err := json.Unmarshal(raw, &ids)
	if err == nil {
		return ids, nil
	}
	var lists [][]uint32
	if json.Unmarshal(raw, &lists) != nil {
		return nil, err
	}
	if len(lists) != 1 {
		return nil, fmt.Errorf("it tells of %d prompts; ask for one at a time", len(lists))
	}
	return lists[0], nil
}

// spans returns the media items by where they stand among n tokens.
func (f *mediaFeatures) spans(n int) ([]MediaSpan, error) {
	var spans []MediaSpan
	for kind, ranges := range f.Placeholders {
		hashes := f.Hashes[kind]
		if len(hashes) != len(ranges) {
			return nil, fmt.Errorf("%d media items of a kind at %d places", len(hashes), len(ranges))
		}
		for i, r := range ranges {
			if r.Offset < 0 || r.Length < 1 || r.Length > n || r.Offset > n-r.Length {
				return nil, fmt.Errorf("a media item at token %d, %d long, in a prompt of %d", r.Offset, r.Length, n)
			}
			spans = append(spans, MediaSpan{hashes[i], r.Offset, r.Length})
		}
	}
	if len(spans) > maxMediaSpans {
		return nil, fmt.Errorf("%d media items, at most %d are read", len(spans), maxMediaSpans)
	}
	slices.SortFunc(spans, func(a, b MediaSpan) int { return cmp.Compare(a.Offset, b.Offset) })
	for i := 1; i < len(spans); i++ {
		if spans[i].Offset < spans[i-1].Offset+spans[i-1].Length {
			return nil, fmt.Errorf("two media items at token %d", spans[i].Offset)
		}
	}
	return spans, nil
}
