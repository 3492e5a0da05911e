package load

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"github.com/rhizome-router/rhizome/workload"
)

// Asker sends single requests of conversations and tells all of what came of
// each, for one that judges answers rather than a run. It is safe for concurrent
// use.
type Asker struct {
	client *client
	format format
	chat   workload.Chat
}

// NewAsker returns an asker for a model, whose conversations are those of chat.
// Each answer may take up to timeout. A nil transport means one of its own.
func NewAsker(model string, chat workload.Chat, transport http.RoundTripper, clk clock.Clock, timeout time.Duration) (*Asker, error) {
	f, err := newFormat(model)
	if err != nil {
		return nil, err
	}
	return &Asker{client: newClient(transport, clk, timeout), format: f, chat: chat}, nil
}

// Close drops idle connections.
func (a *Asker) Close() { a.client.Close() }

// Answer is what came of one request.
type Answer struct {
	// Kind is empty for a complete answer, else the kind of failure (see the Kind
	// constants, and "status_" and a number); Err says more.
	Kind string
	Err  error
	// Sent is when it was sent, First when its first token came (0 if none did),
	// End when it ended.
	Sent, First, End clock.Instant
	// PromptTokens, of which CachedTokens came from a cache, as the engine said.
	PromptTokens, CachedTokens int
	// Worker and Replica are what the router says took it; empty where nothing does.
	Worker, Replica string
}

// Conversation is one session of requests.
type Conversation struct {
	asker    *Asker
	talk     *conversation
	session  workload.Session
	workflow string
	turn     int
}

// Open begins session n of the chat. A workflow names it in its requests, as
// agents do; it may be empty.
func (a *Asker) Open(n int, workflow string) *Conversation {
	c := &Conversation{asker: a, session: a.chat.Session(n), workflow: workflow}
	c.talk = newConversation(a.chat, &c.session)
	return c
}

// Think is how long the session waits before its next turn; ok is false when
// there is none.
func (c *Conversation) Think() (d time.Duration, ok bool) {
	if c.turn >= len(c.session.Turns) {
		return 0, false
	}
	return c.session.Turns[c.turn].After, true
}

// Ask sends the next turn to a base URL and reads its answer. After a failure
// the turn may be asked again.
func (c *Conversation) Ask(ctx context.Context, base string) Answer {
	before := len(c.talk.messages)
	ids := len(c.talk.ids)
	c.talk.ask(c.turn)
	b := c.asker.client.bodies.get()
	b.buf = c.talk.body(b.buf, c.asker.format, c.session.Turns[c.turn].OutputTokens)
	defer b.release()
	if c.workflow != "" {
		b.header = http.Header{"X-Agent-Workflow-Id": {c.workflow}}
	}
	res := c.asker.client.do(ctx, base+c.talk.path(), b, c.talk.onData)
	b.header = nil
	if res.Kind == "" {
		c.talk.answered()
		c.turn++
	} else {
		c.talk.messages, c.talk.ids = c.talk.messages[:before], c.talk.ids[:ids]
		c.talk.answer, c.talk.answerIDs = c.talk.answer[:0], c.talk.answerIDs[:0]
	}
	return Answer{Kind: res.Kind, Err: res.Err, Sent: res.Sent, First: res.First, End: res.End,
		PromptTokens: res.Usage.PromptTokens, CachedTokens: res.Usage.CachedTokens,
		Worker: cmp.Or(res.Worker, res.Emulated.Worker), Replica: res.Replica}
}
