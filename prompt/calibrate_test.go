package prompt

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
)

// guess is the size that c guesses of r.
func guess(c *Calibration, r *Request) int {
	ends, earlier := c.Ends(r, Known{}, nil)
	return c.PromptTokens(r, ends, earlier)
}

func textOf(t *testing.T, model string, bytes int, fill string) *Request {
	t.Helper()
	return parse(t, Completion, `{"model":"`+model+`","prompt":"`+strings.Repeat(fill, bytes-2)+`"}`)
}

func TestCalibration(t *testing.T) {
	c := NewCalibration()
	r := textOf(t, "m", 1000, "a")
	if got := guess(c, r); got != 250 {
		t.Errorf("cold guess %d, want 250", got)
	}
	c.Observe(textOf(t, "m", 10, "a"), 3, 1000, 1) // too short to tell
	for range 20 {
		c.Observe(textOf(t, "m", 1000, "b"), 250, 500, 1)
	}
	if got := guess(c, r); got != 500 {
		t.Errorf("learned guess %d, want 500", got)
	}
	if high := c.HighTokens("m", 500); high < 500 {
		t.Errorf("at most %v tokens of 500", high)
	}
	for i := range 2 * maxModels {
		c.Observe(textOf(t, fmt.Sprint(i), 1000, "b"), 250, 500, 1)
	}
	if len(c.models) > maxModels {
		t.Errorf("%d models kept", len(c.models))
	}
}

// Of a prompt that was counted before, what follows alone is guessed.
func TestSizesOfEarlierPrompts(t *testing.T) {
	c := NewCalibration()
	turn := `{"role":"user","content":"` + strings.Repeat("x", 3000) + `"}`
	first := parse(t, Chat, `{"model":"m","messages":[`+turn+`]}`)
	c.Observe(first, 0, 2000, 60)
	reply := `{"role":"assistant","content":"` + strings.Repeat("y", 100) + `"}`
	next := parse(t, Chat, `{"model":"m","messages":[`+turn+`,`+reply+`,`+turn+`]}`)
	ends, earlier := c.Ends(next, Known{}, nil)
	if earlier.PromptTokens != 2000 || earlier.OutputTokens != 60 || !earlier.Answered || ends[earlier.Chunks-1] != 2000 {
		t.Fatalf("%+v, %v", earlier, ends)
	}
	perByte, _ := c.TokensPerByte("m")
	if got, want := ends[len(ends)-1], 2000+perByte*float64(next.TextBytes-first.TextBytes); math.Abs(got-want) > 1 {
		t.Errorf("%v tokens, want %v", got, want)
	}
	for i := 1; i < len(ends); i++ {
		if ends[i] < ends[i-1] {
			t.Fatalf("a longer part has fewer tokens: %v", ends)
		}
	}
	// What is learned of a boundary counts, too, wherever it is.
	ends, _ = c.Ends(next, Known{Tokens: 2100, Chunks: earlier.Chunks + 1}, nil)
	if ends[earlier.Chunks-1] != 2000 || ends[earlier.Chunks] != 2100 {
		t.Errorf("%v", ends)
	}
	other := parse(t, Chat, `{"model":"m","messages":[`+reply+`,`+turn+`]}`)
	if _, earlier := c.Ends(other, Known{}, nil); earlier != (Size{}) {
		t.Errorf("%+v of a prompt that begins with none", earlier)
	}
}

func TestSizesAreBounded(t *testing.T) {
	c := NewCalibration()
	for i := range 3 * maxSizes {
		r := &Request{Model: "m", Prompts: 1, TextBytes: 1000, chunks: []Chunk{{Key: 1 + 2*1000003*kv.Key(i), TextBytes: 1000}}}
		c.Observe(r, 250, 250, 1)
	}
	if n := len(c.sizes) + len(c.older); n > 2*maxSizes {
		t.Errorf("%d sizes kept", n)
	}
}

// Whether an answer is cached when it comes back is what was seen of late.
func TestAnswersKept(t *testing.T) {
	c := NewCalibration()
	s := Size{Chunks: 3, PromptTokens: 1000, OutputTokens: 200, Answered: true}
	if got := c.KeptTokens("m", s); got != 0 {
		t.Errorf("%d tokens kept before any was seen", got)
	}
	for range 5 {
		c.ObserveKept("m", s, 1184, 16)
	}
	if got := c.KeptTokens("m", s); got != 199 {
		t.Errorf("%d tokens kept, want 199", got)
	}
	c.ObserveKept("m", s, 160, 16) // evicted: says nothing
	if got := c.KeptTokens("m", s); got != 199 {
		t.Errorf("%d tokens kept after an eviction", got)
	}
	for range 20 {
		c.ObserveKept("m", s, 1008, 16)
	}
	if got := c.KeptTokens("m", s); got != 0 {
		t.Errorf("%d tokens kept under a template that changes them", got)
	}
}

func TestMediaItemsHaveASize(t *testing.T) {
	c := NewCalibration()
	body := func(images int) *Request {
		return parse(t, Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"`+strings.Repeat("z", 2000)+`"}`+
			strings.Repeat(`,{"type":"image_url","image_url":{"url":"https://a.b/c.png"}}`, images)+`]}]}`)
	}
	plain := body(0)
	if n := body(3).MediaItems; n != 3 {
		t.Fatalf("%d items", n)
	}
	for range 30 {
		c.Observe(plain, 500, 500, 1)
		c.Observe(body(2), 2000, 3000+plain.TextBytes/4, 1)
	}
	if got := c.ItemTokens("m"); got < 1200 || got > 1600 {
		t.Errorf("%v tokens an item, want about 1500 less the text around it", got)
	}
	if got := guess(c, body(4)); got < 5000 || got > 8000 {
		t.Errorf("4 items are guessed at %d", got)
	}
}
