package emulator

import (
	"slices"
	"strings"
	"testing"
)

// tokenIDs is what answers tell to those who set return_token_ids.
type tokenIDs struct {
	Prompt  []uint32 `json:"prompt_token_ids"` // of a chat
	Choices []struct {
		Index  int
		Prompt []uint32 `json:"prompt_token_ids"` // of completions
		IDs    []uint32 `json:"token_ids"`
	}
}

func TestTokenIDsOfAnswers(t *testing.T) {
	w := start(t, nil)
	render := rendering(t, w)
	for _, c := range []struct {
		path string
		body obj
	}{
		{"/v1/chat/completions", obj{"messages": talk, "max_tokens": 9, "n": 2}},
		{"/v1/completions", obj{"prompt": "once upon a time", "max_tokens": 9, "n": 2}},
	} {
		want := render(c.path, c.body).Tokens
		c.body["return_token_ids"] = true
		_, raw := post(t, w.URL()+c.path, c.body)
		whole := decodeAs[tokenIDs](t, raw)
		texts := decodeAs[completion](t, raw).Choices
		c.body["stream"] = true
		_, raw = post(t, w.URL()+c.path, c.body)
		streamed := make(map[int][]uint32)
		prompt := [2][]uint32{}
		for _, e := range sse(t, raw) {
			if e == "[DONE]" {
				break
			}
			chunk := decodeAs[tokenIDs](t, []byte(e))
			prompt[0] = append(prompt[0], chunk.Prompt...)
			for _, choice := range chunk.Choices {
				streamed[choice.Index] = append(streamed[choice.Index], choice.IDs...)
				prompt[choice.Index] = append(prompt[choice.Index], choice.Prompt...)
			}
		}
		for i, choice := range whole.Choices {
			text := texts[i].Text + texts[i].Message.Content
			if !slices.Equal(choice.IDs, appendTokens(nil, []byte(text))) || !slices.Equal(streamed[choice.Index], choice.IDs) {
				t.Errorf("%s: %v, streamed %v, of %q", c.path, choice.IDs, streamed[choice.Index], text)
			}
			if chat := strings.Contains(c.path, "chat"); chat && choice.Prompt != nil || !chat && (!slices.Equal(choice.Prompt, want) || !slices.Equal(prompt[i], want)) {
				t.Errorf("%s: prompt %v in choice %d, streamed %v", c.path, choice.Prompt, i, prompt[i])
			}
		}
		if strings.Contains(c.path, "chat") && (!slices.Equal(whole.Prompt, want) || !slices.Equal(prompt[0], want)) {
			t.Errorf("%s: prompt %v, streamed %v", c.path, whole.Prompt, prompt[0])
		}
	}
}
