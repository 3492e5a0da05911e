package gateway

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rhizome-router/rhizome/prompt"
	"github.com/rhizome-router/rhizome/route"
)

// admit is the second hop: it reads the request within the limits and finds
// out what routing needs of it.
func (g *Gateway) admit(x *exchange, kind prompt.Kind) error {
	look, err := g.reader(x)
	if err != nil {
		return err
	}
	defer g.readers.put(look)
	err = g.readBody(x, look)
	x.received = len(x.body.received)
	if err != nil {
		return x.typeFault(err)
	}
	if err := g.understand(x, kind, look); err != nil {
		return err
	}
	x.header = workerHeader(x.r.Header, x.id, g.cfg.ForwardAuthorization, x.caller.trust)
	x.rewrites = g.rewritesOf(x.named, x.prompt.Model)
	return nil
}

// understand makes x's query of what look has read of its body.
func (g *Gateway) understand(x *exchange, kind prompt.Kind, look bodyReader) (err error) {
	hints := g.hintsOf(x)
	x.named = look.Model(x.body.plain)
	x.prompt, err = look.Request(kind, x.body.plain, func(name string) string {
		x.named = g.orOnly(name)
		return g.resolve(x.named, hints.drawKey(x.id))
	})
	if err != nil {
		return x.typeFault(err)
	}
	if x.caller.trust {
		hints.add(x.prompt.Hints)
	}
	x.query = route.Query{ID: x.id, Prompt: x.prompt, Tenant: x.caller.tenant, Tool: hints.tool, Pin: hints.pin,
		ExpectedOutputTokens: hints.outputTokens, Agent: hints.agent, Weight: x.caller.weight, Hints: hints.rest}
	if key := x.prompt.CacheKey; key != "" && len(key) <= maxHintBytes {
		x.query.Session = "cache key:" + x.caller.tenant + ":" + key // it moves nobody else's requests
	}
	if err := g.follow(x); err != nil {
		return err
	}
	if x.prompt.Model == "" {
		return errNoModel
	}
	if !x.caller.mayUse(x.named) {
		return fmt.Errorf("%w: %s", errForbidden, shorten(x.named))
	}
	if most := g.cfg.Models[x.named].MaxModelLen; most > 0 && route.ExactTokens(x.prompt) > most {
		return route.ErrTooLong
	}
	return nil
}

// reader returns what reads x's body, by its Content-Type.
func (g *Gateway) reader(x *exchange) (bodyReader, error) {
	if x.state != "" {
		return opaque{}, nil
	}
	f, err := formOf(x.r.Header.Get("Content-Type"))
	if f != nil || err != nil {
		return f, err
	}
	x.json = true
	return g.readers.get(), nil
}

// readers keeps scanners of JSON for other bodies, with the memory that they
// have taken.
type readers struct{ pool sync.Pool }

func (r *readers) get() *prompt.Scanner {
	if s, ok := r.pool.Get().(*prompt.Scanner); ok {
		s.Reset()
		return s
	}
	return new(prompt.Scanner)
}

// put takes a reader that nobody uses any more.
func (r *readers) put(look bodyReader) {
	if s, ok := look.(*prompt.Scanner); ok {
		r.pool.Put(s)
	}
}

// typeFault says of a body that is not JSON, and does not claim to be, that it
// is of the wrong type. Clients that send JSON under another name are served.
func (x *exchange) typeFault(err error) error {
	t, _, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if describe(err).code != invalidJSON || t == "" || strings.Contains(t, "json") {
		return err
	}
	return fmt.Errorf("%w, not %s", errBodyType, shorten(t))
}

// orOnly returns the model's name, or that of the only model there is where a
// request names none.
func (g *Gateway) orOnly(name string) string {
	if name != "" {
		return name
	}
	if all := g.listed(); len(all) == 1 {
		return all[0].ID
	}
	return ""
}

// hints are what a trusted caller says about its request.
type hints struct {
	agent        route.Agent
	pin          string
	tool         string
	outputTokens int
	rest         route.Hints
}

// hintNames are the headers that are believed, and passed on, from trusted
// callers alone.
var hintNames = []string{
	headerWorkflow, headerStep, headerTools, headerSteps, headerOutputTokens, headerPriority,
}

// maxHintBytes bounds a hint that names something.
const maxHintBytes = 256

// maxToolBytes bounds the name of a tool.
const maxToolBytes = 64

// maxHintTokens bounds how long an output may be said to become.
const maxHintTokens = 1 << 20

// maxHintPriority bounds a priority, either way.
const maxHintPriority = 1 << 20

func (g *Gateway) hintsOf(x *exchange) hints {
	if !x.caller.trust {
		return hints{}
	}
	h := hints{agent: agentOf(x.r.Header), pin: boundedHint(x.r.Header, headerPin), tool: boundedHint(x.r.Header, headerTools)}
	if h.tool == "" {
		h.tool = h.agent.Step
	}
	if n, err := strconv.Atoi(x.r.Header.Get(headerOutputTokens)); err == nil && n > 0 {
		h.outputTokens = min(n, maxHintTokens)
	}
	if n, err := strconv.Atoi(x.r.Header.Get(headerPriority)); err == nil {
		h.rest.Priority = max(-maxHintPriority, min(n, maxHintPriority))
	}
	return h
}

// add fills in what the body says and the header doesn't.
func (h *hints) add(b prompt.Hints) {
	if h.outputTokens == 0 {
		h.outputTokens = min(b.OutputTokens, maxHintTokens)
	}
	if h.rest.Priority == 0 {
		h.rest.Priority = max(-maxHintPriority, min(b.Priority, maxHintPriority))
	}
	h.rest.CacheTTL = b.CacheTTL
}

// agentOf reads the context of an agent, each part within its bounds; a part
// that is not is left out.
func agentOf(h http.Header) route.Agent {
	a := route.Agent{Workflow: boundedHint(h, headerWorkflow), Step: boundedHint(h, headerStep), StepsToExecution: -1}
	for _, line := range h[headerTools] {
		for tool := range strings.SplitSeq(line, ",") {
			if tool = strings.TrimSpace(tool); tool != "" && len(tool) <= maxToolBytes && len(a.ExpectedTools) < route.MaxExpectedTools && !slices.Contains(a.ExpectedTools, tool) {
				a.ExpectedTools = append(a.ExpectedTools, strings.Clone(tool))
			}
		}
	}
	if n, err := strconv.Atoi(h.Get(headerSteps)); err == nil && n >= 0 {
		a.StepsToExecution = min(n, route.MaxStepsToExecution)
	}
	return a
}

func boundedHint(h http.Header, name string) string {
	if s := h.Get(name); len(s) <= maxHintBytes {
		return s
	}
	return ""
}

// drawKey is what draws one of several models: requests of one workflow get the
// same one.
func (h hints) drawKey(id string) string {
	if h.agent.Workflow != "" {
		return h.agent.Workflow
	}
	return id
}
