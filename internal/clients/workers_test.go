package clients

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// scripted are workers that each serve one model, and do to each request what
// the model's name says.
type scripted struct {
	specs []string
	// left counts, by model, the connections that clients ended while their
	// worker still had something to say.
	mu   sync.Mutex
	left map[string]int
	wg   sync.WaitGroup
}

func chunk(delta string) string {
	return `{"id":"c","object":"chat.completion.chunk","created":1,"model":"x","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
}

func finish(reason string) string {
	return `{"id":"c","object":"chat.completion.chunk","created":1,"model":"x","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func completion(text string) string {
	return `{"id":"c","object":"chat.completion","created":1,"model":"x","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		text + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
}

func problem(text string) string {
	return `{"error":{"message":"` + text + `","type":"t","param":null,"code":"scripted"}}`
}

// begun is a stream that has said one word.
var begun = testkit.Send(testkit.SSEHead(), testkit.Chunk("data: "+chunk(`{"role":"assistant","content":"half"}`)+"\n\n"))

// newScripted starts the workers.
func newScripted(t *testing.T) *scripted {
	s := &scripted{left: make(map[string]int)}
	send := func(wire string) func(testkit.Request) testkit.Script {
		return func(testkit.Request) testkit.Script { return testkit.Script{testkit.Send(wire)} }
	}
	script := func(steps ...testkit.Step) func(testkit.Request) testkit.Script {
		return func(testkit.Request) testkit.Script { return steps }
	}
	for model, choose := range map[string]func(testkit.Request) testkit.Script{
		"agent":         agent,
		"responses":     send(responsesStream),
		"messages":      send(messagesStream),
		"messages-dies": script(testkit.SendFirst(messagesStream, strings.Index(messagesStream, `"text":"fine"`)), testkit.RST()),
		"echo-length": func(r testkit.Request) testkit.Script {
			return testkit.Script{testkit.Send(testkit.JSON(200, completion(fmt.Sprint(len(r.Body) > 2_800_000))))}
		},
		"says-401":      send(testkit.JSON(401, problem("no"))),
		"says-429":      send(testkit.JSON(429, problem("slow down"), "Retry-After: 7")),
		"says-429-once": firstTime(testkit.JSON(429, problem("slow down"), "Retry-After: 1"), testkit.JSON(200, completion("served"))),
		"says-503":      send(testkit.JSON(503, problem("busy"), "Retry-After: 3")),
		"dies":          script(begun, testkit.RST()),
		"dies-before":   script(testkit.RST()),
		"cut-short":     script(testkit.SendFirst(testkit.JSON(200, completion("never whole")), 150), testkit.FIN()),
		"stalls":        s.waits("stalls", begun),
		"silent":        s.waits("silent"),
		"leaves":        s.waits("leaves", begun),
	} {
		w := testkit.NewWorker(t)
		w.On("/v1/models", testkit.Send(testkit.JSON(200, `{"object":"list","data":[{"id":"`+model+`","object":"model","created":1,"owned_by":"x"}]}`)))
		w.On("/version", testkit.Send(testkit.JSON(200, `{"version":"0.11.0"}`)))
		w.On("/health", testkit.Send(testkit.Response(200, "")))
		w.On("/metrics", testkit.Send(testkit.Response(200, "", "Content-Type: text/plain; version=0.0.4")))
		w.Always(testkit.Send(testkit.JSON(404, `{"detail":"Not Found"}`)))
		w.Choose(func(r testkit.Request) testkit.Script {
			if r.Method != "POST" {
				return nil
			}
			return choose(r)
		})
		s.specs = append(s.specs, w.URL()+",engine=vllm,id="+model)
	}
	return s
}

// waits plays the steps and then waits until the client has gone. What the router
// asks for itself has no id, and is not counted.
func (s *scripted) waits(model string, steps ...testkit.Step) func(testkit.Request) testkit.Script {
	return func(r testkit.Request) testkit.Script {
		if r.Header.Get("X-Request-Id") == "" {
			return testkit.Script{testkit.Send(testkit.JSON(404, `{"detail":"Not Found"}`))}
		}
		s.wg.Go(func() {
			<-r.PeerGone
			s.mu.Lock()
			s.left[model]++
			s.mu.Unlock()
		})
		return append(append(testkit.Script{}, steps...), testkit.Stall())
	}
}

// firstTime answers each client's first request in one way, all later ones in
// another. Clients are told apart by their User-Agent.
func firstTime(first, later string) func(testkit.Request) testkit.Script {
	var mu sync.Mutex
	known := make(map[string]bool)
	return func(r testkit.Request) testkit.Script {
		mu.Lock()
		defer mu.Unlock()
		name := r.Header.Get("User-Agent")
		if known[name] {
			return testkit.Script{testkit.Send(later)}
		}
		known[name] = true
		return testkit.Script{testkit.Send(first)}
	}
}

// agent asks for two tools at once, in pieces, then for one more, and then
// answers with what it was told.
func agent(r testkit.Request) testkit.Script {
	call := func(index int, id, name, args string) string {
		return fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}]}`, index, id, name, args)
	}
	more := func(index int, args string) string {
		return fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}`, index, args)
	}
	switch told := strings.Count(r.Body, `"tool_call_id"`); told {
	case 0:
		return testkit.Script{testkit.Send(testkit.SSE(chunk(`{"role":"assistant","content":null}`),
			chunk(call(0, "call_a", "weather", "")), chunk(more(0, `{"ci`)), chunk(more(0, `ty":"Köln"}`)),
			chunk(call(1, "call_b", "time", `{"city":`)), chunk(more(1, `"Rom"}`)), finish("tool_calls"), "[DONE]"))}
	case 2:
		return testkit.Script{testkit.Send(testkit.SSE(chunk(`{"role":"assistant","content":null}`),
			chunk(call(0, "call_c", "weather", `{"city":"Rom"}`)), finish("tool_calls"), "[DONE]"))}
	default:
		text := "lost"
		if told == 3 && strings.Contains(r.Body, "weather in Rom") && strings.Contains(r.Body, "time in Rom") &&
			(strings.Contains(r.Body, "weather in Köln") || strings.Contains(r.Body, `weather in K\u00f6ln`)) {
			text = "all told"
		}
		return testkit.Script{testkit.Send(testkit.SSE(chunk(`{"role":"assistant","content":"`+text[:3]+`"}`),
			chunk(`{"content":"`+text[3:]+`"}`), finish("stop"), "[DONE]"))}
	}
}

// named is a stream of events that have names.
func named(events ...[2]string) string {
	var b strings.Builder
	b.WriteString(testkit.SSEHead())
	for _, e := range events {
		b.WriteString(testkit.Chunk("event: " + e[0] + "\ndata: " + e[1] + "\n\n"))
	}
	return b.String() + testkit.Chunk("")
}

const responseObject = `{"id":"resp_1","object":"response","created_at":1,"status":"%s","model":"responses","output":[],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"metadata":{},"temperature":1,"top_p":1,"error":null,"incomplete_details":null,"instructions":null}`

var responsesStream = named(
	[2]string{"response.created", `{"type":"response.created","sequence_number":0,"response":` + fmt.Sprintf(responseObject, "in_progress") + `}`},
	[2]string{"response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"delta":"fi","logprobs":[]}`},
	[2]string{"response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":2,"item_id":"i","output_index":0,"content_index":0,"delta":"ne","logprobs":[]}`},
	[2]string{"response.completed", `{"type":"response.completed","sequence_number":3,"response":` + fmt.Sprintf(responseObject, "completed") + `}`},
)

var messagesStream = named(
	[2]string{"message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"messages","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}}`},
	[2]string{"content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`},
	[2]string{"ping", `{"type":"ping"}`},
	[2]string{"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"half "}}`},
	[2]string{"content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"fine"}}`},
	[2]string{"content_block_stop", `{"type":"content_block_stop","index":0}`},
	[2]string{"message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}`},
	[2]string{"message_stop", `{"type":"message_stop"}`},
)
