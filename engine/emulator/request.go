package emulator

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"
)

// maxSequences bounds prompts × choices of one request.
const maxSequences = 128

// apiRequest is what the emulator reads of a request body. Everything else in
// a body is ignored.
type apiRequest struct {
	model        string
	prompts      [][]uint32
	maxTokens    int // 0: not given
	n            int
	stream       bool
	includeUsage bool
	salt         string
	base64       bool // embeddings as base64
	tokenStrs    bool // return_token_strs
	tokenIDs     bool // return_token_ids
	cacheDetails bool // return_cached_tokens_details
	tokens       []uint32
	media        []mediaItem // of the chat, in order, unless its tokens say it all
	thinks       bool        // the answer begins with thinking
}

// route is one way to ask.
type route uint8

const (
	routeChat route = iota
	routeCompletion
	routeEmbedding
	routeTokenize
	routeDetokenize
)

// members are what a reading needs all of a body for.
type members struct {
	chat             chat
	prompt, tokens   jsontext.Value
	toolChoice       jsontext.Value
	completionTokens int
}

// reading is how a worker reads request bodies. The zero value is the plain
// template's and vLLM's.
type reading struct {
	template Template
	now      func() time.Time // for dated templates; nil: the epoch
	// alwaysPrompts says that a chat ends with the generation prompt whatever
	// add_generation_prompt says; only continue_final_message leaves it out.
	alwaysPrompts bool
	// padsMedia says that a media item's content is in its tokens.
	padsMedia bool
	// dropsTools says that a tool_choice of "none" drops the tools.
	dropsTools bool
}

// request reads a body. It keeps no part of it. Errors are the client's.
func (rd *reading) request(r route, body []byte) (*apiRequest, error) {
	req := &apiRequest{n: 1}
	m := members{chat: chat{generationPrompt: true}}
	chats := r == routeChat || r == routeTokenize
	err := scan(body, '{', func(d *jsontext.Decoder) error {
		name, err := readName(d)
		if err != nil {
			return err
		}
		if name == "messages" && chats && d.PeekKind() != 'n' {
			return m.chat.readMessages(d, body)
		}
		v, err := readView(d, body)
		if err != nil || v.Kind() == 'n' {
			return err
		}
		return req.read(&m, name, v)
	})
	if err != nil {
		return nil, fmt.Errorf("invalid request body: %w", err)
	}
	if m.completionTokens > 0 {
		req.maxTokens = m.completionTokens
	}
	switch {
	case r == routeDetokenize:
		if m.tokens.Kind() != '[' {
			return nil, errors.New("tokens: must be an array of token ids")
		}
		req.tokens, err = readTokenIDs(m.tokens)
	case m.chat.messages != nil && m.prompt != nil && r == routeTokenize:
		return nil, errors.New("give either prompt or messages")
	case m.chat.messages != nil:
		err = rd.renderChat(req, &m, len(body))
	case r == routeChat:
		return nil, errors.New("messages: field required")
	default:
		req.prompts, err = readPrompts(m.prompt)
	}
	return req, err
}

// renderChat makes the prompt of a chat.
func (rd *reading) renderChat(req *apiRequest, m *members, bodyBytes int) error {
	c := &m.chat
	if rd.alwaysPrompts {
		c.generationPrompt = !c.continueFinal
	}
	if c.continueFinal && c.generationPrompt {
		return errors.New("continue_final_message needs add_generation_prompt to be false")
	}
	if rd.dropsTools && string(m.toolChoice) == `"none"` {
		c.tools = nil
	}
	now := time.Unix(0, 0)
	if rd.now != nil {
		now = rd.now()
	}
	prompt, err := rd.template.render(c, bodyBytes, now)
	req.prompts, req.media = [][]uint32{prompt.tokens}, prompt.media
	if rd.padsMedia {
		for _, m := range req.media {
			h := xxh3.HashString(m.id)
			prompt.tokens[m.at+1], prompt.tokens[m.at+2] = uint32(h)&0x7F7F7F7F, uint32(h>>32)&0x7F7F7F7F
		}
		req.media = nil
	}
	req.thinks = rd.template == TemplateThinking && c.generationPrompt && !c.noThinking
	return err
}

// read takes one member of a body.
func (req *apiRequest) read(m *members, name string, v jsontext.Value) error {
	switch name {
	case "model":
		return readString(&req.model, name, v)
	case "tools":
		m.chat.readTools(v)
	case "tool_choice":
		m.toolChoice = v
	case "chat_template_kwargs":
		return m.chat.readArguments(v)
	case "prompt", "input":
		m.prompt = v
	case "tokens":
		m.tokens = v
	case "max_tokens":
		return readCount(&req.maxTokens, name, v)
	case "max_completion_tokens":
		return readCount(&m.completionTokens, name, v)
	case "n":
		return readCount(&req.n, name, v)
	case "stream":
		return readBool(&req.stream, name, v)
	case "stream_options":
		return req.readStreamOptions(v)
	case "cache_salt":
		return readString(&req.salt, name, v)
	case "add_generation_prompt":
		return readBool(&m.chat.generationPrompt, name, v)
	case "continue_final_message":
		return readBool(&m.chat.continueFinal, name, v)
	case "return_token_strs":
		return readBool(&req.tokenStrs, name, v)
	case "return_token_ids":
		return readBool(&req.tokenIDs, name, v)
	case "return_cached_tokens_details":
		return readBool(&req.cacheDetails, name, v)
	case "encoding_format":
		var format string
		err := readString(&format, name, v)
		req.base64 = format == "base64"
		return err
	}
	return nil
}

func (req *apiRequest) readStreamOptions(v jsontext.Value) error {
	return eachMember(v, func(name string, v jsontext.Value) error {
		if name == "include_usage" && v.Kind() != 'n' {
			return readBool(&req.includeUsage, name, v)
		}
		return nil
	})
}

// readPrompts reads a string, an array of strings, an array of token ids or an
// array of such arrays.
func readPrompts(v jsontext.Value) ([][]uint32, error) {
	var r renderer
	switch v.Kind() {
	case 0:
		return nil, errors.New("prompt: field required")
	case '"':
		r.string(v)
		return [][]uint32{r.tokens}, nil
	case '[':
	default:
		return nil, errors.New("prompt: must be a string or an array")
	}
	var ids []uint32 // of the prompt that the array itself is
	var prompts [][]uint32
	err := eachElement(v, func(e jsontext.Value) error {
		if len(prompts) >= maxSequences {
			return fmt.Errorf("prompt: more than %d prompts", maxSequences)
		}
		switch e.Kind() {
		case '"':
			r.tokens = nil
			r.string(e)
			prompts = append(prompts, r.tokens)
			return nil
		case '[':
			tokens, err := readTokenIDs(e)
			prompts = append(prompts, tokens)
			return err
		}
		id, err := readTokenID(e)
		ids = append(ids, id)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case ids != nil && prompts != nil:
		return nil, errors.New("prompt: mixes token ids with prompts")
	case ids != nil:
		return [][]uint32{ids}, nil
	case prompts == nil:
		return nil, errors.New("prompt: must not be empty")
	}
	return prompts, nil
}

func readTokenIDs(v jsontext.Value) ([]uint32, error) {
	var ids []uint32
	err := eachElement(v, func(e jsontext.Value) error {
		id, err := readTokenID(e)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("token ids: %w", err)
	}
	return ids, nil
}

func readTokenID(v jsontext.Value) (uint32, error) {
	id, err := strconv.ParseUint(string(v), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("token id %.20q must be an integer in 0…4294967295", v)
	}
	return uint32(id), nil
}

func readString(p *string, name string, v jsontext.Value) error {
	if v.Kind() != '"' {
		return fmt.Errorf("%s: must be a string", name)
	}
	*p = string(unquote(nil, v))
	return nil
}

func readBool(p *bool, name string, v jsontext.Value) error {
	switch v.Kind() {
	case 't', 'f':
		*p = v.Kind() == 't'
		return nil
	}
	return fmt.Errorf("%s: must be true or false", name)
}

// readCount reads a number of at least 1.
func readCount(p *int, name string, v jsontext.Value) error {
	n, err := strconv.Atoi(string(v))
	if err != nil || n < 1 {
		return fmt.Errorf("%s: must be an integer of at least 1, got %.20s", name, v)
	}
	*p = n
	return nil
}
