package route

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/prompt"
)

// A text is priced at its mean size, and admitted at one that it seldom has
// more than; how far these are apart is learned. Token ids are what they are.
func TestGuessedSizesHaveAMargin(t *testing.T) {
	h := newHouse(t, Rhizome, 1)
	of := func(q *Query) (mean, high float64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		z := h.size(q, prompt.Known{})
		request := h.requestOf(q, &z)
		return request.PromptTokens, request.HighTokens
	}
	if mean, high := of(&Query{Prompt: tokens(t, 2000, 16, 1)}); mean != 2016 || high != mean {
		t.Errorf("2016 token ids are %v, at most %v", mean, high)
	}
	say := func(n int) *Query {
		return &Query{Prompt: text(t, strings.Repeat(fmt.Sprint("some words ", n), 300))}
	}
	mean, cold := of(say(0))
	if cold < 1.2*mean {
		t.Errorf("%v tokens at a first guess, at most %v", mean, cold)
	}
	for n := range 60 {
		d := h.decide(t, say(n).Prompt)
		h.Done(d, Outcome{Result: Completed, Usage: Usage{Known: true, PromptTokens: 1000 + n%3, CachedTokens: -1, CompletionTokens: 5}})
	}
	if mean, high := of(say(77)); mean < 900 || mean > 1200 || high > 1.1*mean || high < mean {
		t.Errorf("%v tokens, at most %v, where guesses came true", mean, high)
	}
}
