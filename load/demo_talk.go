package load

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rhizome-router/rhizome/workload"
)

const (
	// maxSessions bounds how many conversations of an open loop run at once;
	// when it is reached, new ones wait.
	maxSessions = 4096

	// failurePause is the wall time a place waits after a failed request, so
	// that a broken router is not hammered.
	failurePause = time.Second
)

// talk holds conversations until sending ends, and returns when every request
// has been answered. The end of ctx also breaks off requests under way.
func (d *demo) talk(ctx, sending context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	chat := d.cfg.Chat
	if chat.StartsPerSecond == 0 {
		for place := range chat.Concurrent {
			wg.Go(func() {
				for n := place; sending.Err() == nil; n += chat.Concurrent {
					d.converse(ctx, sending, n)
				}
			})
		}
		return
	}
	slots := make(chan struct{}, maxSessions)
	for n := 0; d.wait(sending, chat.Session(n).Gap) == nil; n++ {
		select {
		case slots <- struct{}{}:
		case <-sending.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			d.converse(ctx, sending, n)
		})
	}
}

// wait sleeps for a modelled time.
func (d *demo) wait(ctx context.Context, modelled time.Duration) error {
	return d.cfg.Clock.Sleep(ctx, time.Duration(float64(modelled)/d.cfg.Speedup))
}

// converse holds one conversation. A failed request ends it.
func (d *demo) converse(ctx, sending context.Context, n int) {
	s := d.cfg.Chat.Session(n)
	c := newConversation(d.cfg.Chat, &s)
	c.named = d.cfg.NameSessions
	for k, turn := range s.Turns {
		if d.wait(sending, turn.After) != nil {
			return
		}
		c.ask(k)
		if d.gate.enter(sending) != nil {
			return
		}
		b := d.client.bodies.get()
		b.buf = c.body(b.buf, d.format, turn.OutputTokens)
		res := d.client.do(ctx, d.url()+c.path(), b, c.onData)
		d.gate.leave()
		b.release()
		d.add(&res)
		if res.Kind != "" {
			_ = d.cfg.Clock.Sleep(sending, failurePause)
			return
		}
		c.answered()
	}
}

// url returns where the router is now: of several replicas any, as behind a
// balancer that knows nothing of sessions.
func (d *demo) url() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.router.Replicas); n > 1 {
		return d.router.Replicas[d.balance.IntN(n)]
	}
	return d.router.URL
}

// conversation is one session with its real answers: the growing prompt, as
// JSON of chat messages or as token ids.
type conversation struct {
	chat    workload.Chat
	session *workload.Session
	named   bool // requests say which conversation they belong to

	messages []byte // an open JSON array
	ids      []uint32

	answer    []byte
	answerIDs []uint32
	scratch   []byte
}

func newConversation(chat workload.Chat, s *workload.Session) *conversation {
	c := &conversation{chat: chat, session: s}
	if s.Tokens {
		c.ids = chat.SystemTokenIDs(nil, s.System)
		return c
	}
	c.messages = append(c.messages, '[')
	c.say("system", chat.SystemText(nil, s.System))
	return c
}

// ask adds the user message of turn k.
func (c *conversation) ask(k int) {
	if c.session.Tokens {
		c.ids = c.chat.UserTokenIDs(c.ids, c.session, k)
		return
	}
	c.scratch = c.chat.UserText(c.scratch[:0], c.session, k)
	c.say("user", c.scratch)
}

// answered adds the answer that onData gathered. Engines that do not tell their
// token ids leave the answer out of a conversation in token ids.
func (c *conversation) answered() {
	if c.session.Tokens {
		c.ids = append(c.ids, c.answerIDs...)
	} else {
		c.say("assistant", c.answer)
	}
	c.answer, c.answerIDs = c.answer[:0], c.answerIDs[:0]
}

func (c *conversation) say(role string, text []byte) {
	if len(c.messages) > 1 {
		c.messages = append(c.messages, ',')
	}
	quoted, err := json.Marshal(string(text))
	if err != nil { // strings always marshal
		quoted = []byte(`""`)
	}
	c.messages = append(c.messages, `{"role":"`+role+`","content":`...)
	c.messages = append(c.messages, quoted...)
	c.messages = append(c.messages, '}')
}

func (c *conversation) path() string {
	if c.session.Tokens {
		return completionPath
	}
	return chatPath
}

func (c *conversation) body(dst []byte, f format, maxTokens int) []byte {
	dst = f.open(dst)
	if c.named {
		dst = fmt.Appendf(dst, `,"prompt_cache_key":"conversation %d"`, c.session.N)
	}
	if !c.session.Tokens {
		dst = append(dst, `,"messages":`...)
		dst = append(dst, c.messages...)
		dst = append(dst, ']')
		return f.close(dst, maxTokens)
	}
	dst = append(dst, `,"return_token_ids":true,"prompt":[`...)
	for i, id := range c.ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	dst = append(dst, ']')
	return f.close(dst, maxTokens)
}

// onData gathers the answer out of its events.
func (c *conversation) onData(event []byte) {
	var chunk struct {
		Choices []struct {
			Text  string `json:"text"`
			Delta struct {
				Content string `json:"content"`
			} `json:"delta"`
			TokenIDs []uint32 `json:"token_ids"`
		} `json:"choices"`
	}
	if json.Unmarshal(event, &chunk) != nil || len(chunk.Choices) == 0 {
		return
	}
	first := chunk.Choices[0]
	c.answer = append(append(c.answer, first.Text...), first.Delta.Content...)
	c.answerIDs = append(c.answerIDs, first.TokenIDs...)
}
