package emulator

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strconv"
)

// reply writes the answer of one call. Its bytes are shaped like vLLM's.
type reply struct {
	w       *Worker
	rw      http.ResponseWriter
	route   route
	req     *apiRequest
	call    *call
	id      string
	created int64

	state snapshot
	sent  []int  // tokens of each job told so far
	open  []byte // what every chunk begins with
	buf   []byte
}

// run writes the answer as it comes. It returns false when the client left
// before the end.
func (a *reply) run(ctx context.Context) bool {
	started := false
	a.sent = make([]int, len(a.call.jobs))
	for {
		select {
		case <-a.call.wake:
		case <-ctx.Done():
			return false
		case <-a.w.done:
			return true
		}
		a.call.read(&a.state)
		switch {
		case a.state.err != nil:
			a.w.writeError(a.rw, http.StatusBadRequest, "BadRequestError", a.state.err.Error())
			return true
		case a.req.stream:
			if !started {
				started = true
				a.headers("text/event-stream; charset=utf-8")
			}
			if err := a.stream(); err != nil {
				return false
			}
		case a.state.done:
			a.headers("application/json")
			a.whole()
			_, _ = a.rw.Write(a.buf)
		}
		if a.state.done {
			return true
		}
	}
}

func (a *reply) headers(contentType string) {
	h := a.rw.Header()
	h.Set("Content-Type", contentType)
	h.Set(HeaderClock, strconv.FormatFloat(a.state.clock, 'f', 0, 64))
	h.Set(HeaderBusy, strconv.FormatFloat(a.state.busy, 'f', 0, 64))
	h.Set(HeaderHBMTokens, strconv.Itoa(a.state.hbmTokens))
	h.Set(HeaderTierTokens, strconv.Itoa(a.state.tierTokens))
}

// stream writes the chunks that are due.
func (a *reply) stream() error {
	a.buf = a.buf[:0]
	for i, j := range a.call.jobs {
		from, to := a.sent[i], a.state.out[i]
		if from == to {
			continue
		}
		if from == 0 && a.route == routeChat {
			a.roleChunk(i)
		}
		a.textChunk(i, j.answer, from, to, "")
		if to == j.answer.n {
			a.textChunk(i, j.answer, to, to, j.answer.finishReason())
		}
		a.sent[i] = to
	}
	if a.state.done {
		if a.req.cacheDetails {
			a.begin()
			a.buf = append(a.buf, `,"choices":[]`...)
			a.cacheDetails()
			a.end()
		}
		if a.req.includeUsage {
			a.begin()
			a.buf = append(a.buf, `,"choices":[],"usage":`...)
			a.usage()
			a.end()
		}
		a.buf = append(a.buf, "data: [DONE]\n\n"...)
	}
	if len(a.buf) == 0 {
		return nil
	}
	if _, err := a.rw.Write(a.buf); err != nil || a.state.done {
		return err // the end is flushed with the answer's
	}
	return http.NewResponseController(a.rw).Flush()
}

// textChunk appends a chunk with tokens from…to−1 of an answer. Made-up text
// needs no escaping.
func (a *reply) textChunk(index int, ans answer, from, to int, finish string) {
	before, after := `,"text":"`, `","logprobs":null`
	if a.route == routeChat {
		before, after = `,"delta":{"content":"`, `"},"logprobs":null`
	}
	a.beginChoice(index)
	a.buf = append(a.buf, before...)
	a.buf = ans.appendText(a.buf, from, to)
	a.buf = append(a.buf, after...)
	if from == 0 && a.route == routeCompletion {
		a.promptTokenIDs(index)
	}
	a.answerTokenIDs(index, from, to)
	a.endChoice(finish)
}

// roleChunk appends the chunk that begins a choice of a chat.
func (a *reply) roleChunk(index int) {
	a.beginChoice(index)
	a.buf = append(a.buf, `,"delta":{"role":"assistant","content":""},"logprobs":null`...)
	a.finishReason("")
	a.buf = append(a.buf, '}', ']')
	if index == 0 {
		a.promptTokenIDs(0)
	}
	a.end()
}

// promptTokenIDs appends which tokens the prompt of a choice has, to those who
// asked: vLLM tells a chat once, completions in each choice.
func (a *reply) promptTokenIDs(index int) {
	if a.req.tokenIDs {
		j := a.call.jobs[index]
		a.buf = appendIDs(append(a.buf, `,"prompt_token_ids":`...), j.tokens[:j.promptTokens])
	}
}

// answerTokenIDs appends which tokens from…to−1 of an answer are, to those who
// asked.
func (a *reply) answerTokenIDs(index, from, to int) {
	if a.req.tokenIDs {
		j := a.call.jobs[index]
		a.buf = appendIDs(append(a.buf, `,"token_ids":`...), j.tokens[j.promptTokens+from:j.promptTokens+to])
	}
}

func appendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

func (a *reply) beginChoice(index int) {
	a.begin()
	a.buf = append(a.buf, `,"choices":[{"index":`...)
	a.buf = strconv.AppendInt(a.buf, int64(index), 10)
}

func (a *reply) endChoice(finish string) {
	a.finishReason(finish)
	a.buf = append(a.buf, '}', ']')
	a.end()
}

func (a *reply) finishReason(finish string) {
	if finish == "" {
		a.buf = append(a.buf, `,"finish_reason":null`...)
		return
	}
	a.buf = append(fmt.Appendf(a.buf, `,"finish_reason":%q`, finish), a.w.dialect.stopMember...)
}

// begin opens an SSE event with the members that all chunks have.
func (a *reply) begin() {
	if a.open == nil {
		object := "text_completion"
		if a.route == routeChat {
			object = "chat.completion.chunk"
		}
		a.open = a.appendHead([]byte("data: "), object)
	}
	a.buf = append(a.buf, a.open...)
}

func (a *reply) end() { a.buf = append(a.buf, "}\n\n"...) }

// appendHead opens an answer or chunk with the members that all have.
func (a *reply) appendHead(dst []byte, object string) []byte {
	return fmt.Appendf(dst, `{"id":%q,"object":%q,"created":%d,"model":%s`, a.id, object, a.created, a.w.quotedModel)
}

// usage appends the usage object. Prompts count once, however many choices.
func (a *reply) usage() {
	var prompt, completion int
	for i, j := range a.call.jobs {
		if i%a.req.n == 0 {
			prompt += j.promptTokens
		}
		completion += a.state.out[i]
	}
	if a.route == routeEmbedding {
		completion = 0
	}
	a.buf = fmt.Appendf(a.buf, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`,
		prompt, prompt+completion, completion, a.state.hbmTokens+a.state.tierTokens)
}

// whole writes a complete answer into the buffer.
func (a *reply) whole() {
	a.buf = a.buf[:0]
	switch a.route {
	case routeChat:
		a.buf = a.appendHead(a.buf, "chat.completion")
	case routeCompletion:
		a.buf = a.appendHead(a.buf, "text_completion")
	default:
		a.embeddings()
		return
	}
	a.buf = append(a.buf, `,"choices":[`...)
	for i, j := range a.call.jobs {
		if i > 0 {
			a.buf = append(a.buf, ',')
		}
		if a.route == routeChat {
			a.buf = fmt.Appendf(a.buf, `{"index":%d,"message":{"role":"assistant","content":"`, i)
			a.buf = j.answer.appendText(a.buf, 0, j.answer.n)
			a.buf = append(a.buf, `","refusal":null,"tool_calls":[]},"logprobs":null`...)
		} else {
			a.buf = fmt.Appendf(a.buf, `{"index":%d,"text":"`, i)
			a.buf = j.answer.appendText(a.buf, 0, j.answer.n)
			a.buf = append(a.buf, `","logprobs":null`...)
			a.promptTokenIDs(i)
		}
		a.answerTokenIDs(i, 0, j.answer.n)
		a.finishReason(j.answer.finishReason())
		a.buf = append(a.buf, '}')
	}
	a.buf = append(a.buf, ']')
	if a.route == routeChat {
		a.promptTokenIDs(0)
	}
	a.buf = append(a.buf, `,"usage":`...)
	a.usage()
	if a.req.cacheDetails {
		a.cacheDetails()
	}
	a.buf = append(a.buf, '}')
}

// cacheDetails appends SGLang's member on where cached tokens were found.
func (a *reply) cacheDetails() {
	a.buf = fmt.Appendf(a.buf, `,"sglext":{"cached_tokens_details":{"device":%d,"host":%d}}`, a.state.hbmTokens, a.state.tierTokens)
}

// embeddingSize is the length of the made-up vectors.
const embeddingSize = 8

// embeddings writes one unit vector per prompt, made up from its tokens.
func (a *reply) embeddings() {
	a.buf = a.appendHead(a.buf, "list")
	a.buf = append(a.buf, `,"data":[`...)
	for i, j := range a.call.jobs {
		if i > 0 {
			a.buf = append(a.buf, ',')
		}
		var v [embeddingSize]float64
		norm := 0.0
		for k := range v {
			v[k] = float64(int8(j.answer.seed >> (8 * k)))
			norm += v[k] * v[k]
		}
		norm = max(math.Sqrt(norm), 1)
		a.buf = fmt.Appendf(a.buf, `{"index":%d,"object":"embedding","embedding":`, i)
		if a.req.base64 {
			var raw []byte
			for k := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(v[k]/norm)))
			}
			a.buf = append(a.buf, '"')
			a.buf = base64.StdEncoding.AppendEncode(a.buf, raw)
			a.buf = append(a.buf, '"', '}')
			continue
		}
		for k := range v {
			sep := byte(',')
			if k == 0 {
				sep = '['
			}
			a.buf = append(a.buf, sep)
			a.buf = strconv.AppendFloat(a.buf, v[k]/norm, 'g', 7, 32)
		}
		a.buf = append(a.buf, ']', '}')
	}
	a.buf = append(a.buf, `],"usage":`...)
	a.usage()
	a.buf = append(a.buf, '}')
}
