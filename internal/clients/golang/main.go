// Command golang plays the scenarios with OpenAI's library for Go.
//
// Usage: golang BASE-URL KEY LIMITED-KEY. Prints {scenario: what was seen} as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// seen is what a scenario saw. Its members have the names that the checks in
// the other languages print.
type seen map[string]any

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: golang BASE-URL KEY LIMITED-KEY")
		os.Exit(2)
	}
	client := openai.NewClient(option.WithBaseURL(os.Args[1]+"/v1"), option.WithAPIKey(os.Args[2]),
		option.WithMaxRetries(0), option.WithRequestTimeout(20*time.Second))
	p := player{client, context.Background()}
	limited := option.WithAPIKey(os.Args[3])
	all := make(map[string]seen)
	for name, play := range map[string]func() (seen, error){
		"wrong_key": func() (seen, error) { return p.plain("m", option.WithAPIKey(os.Args[2]+"-not")) },
		"forbidden": func() (seen, error) { return p.plain("says-401", limited, option.WithMaxRetries(3)) },
		"rate_limited_then_served": func() (seen, error) {
			if _, err := p.plain("m", limited, option.WithMaxRetries(3)); err != nil {
				return nil, err
			}
			s, err := p.plain("m", limited, option.WithMaxRetries(3))
			return seen{"text": s["text"] != ""}, err
		},
		"models": p.models, "chat": p.chat, "stream": p.stream, "agent": p.agent,
		"unknown_model":       func() (seen, error) { return p.plain("nobody-has-it") },
		"unauthorized":        func() (seen, error) { return p.plain("says-401") },
		"limited":             func() (seen, error) { return p.plain("says-429") },
		"limited_then_served": p.limitedThenServed,
		"overloaded":          func() (seen, error) { return p.collect("says-503") },
		"dies":                func() (seen, error) { return p.collect("dies") },
		"dies_before":         func() (seen, error) { return p.collect("dies-before") },
		"cut_short":           func() (seen, error) { return p.plain("cut-short") },
		"stalls":              func() (seen, error) { return p.collect("stalls", option.WithRequestTimeout(2*time.Second)) },
		"leaves":              p.leaves,
	} {
		s, err := play()
		if err != nil {
			s = failure(err, s)
		}
		all[name] = s
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// failure is how an error is told; got is what was seen before it.
func failure(err error, got seen) seen {
	s := seen{"error": fmt.Sprintf("%T", err), "text": got["text"]}
	if e, ok := errors.AsType[*openai.Error](err); ok {
		s["error"], s["status"], s["code"] = "Error", e.StatusCode, e.Code
		if e.Response != nil {
			s["retry_after"] = e.Response.Header.Get("Retry-After")
		}
	}
	return s
}

type player struct {
	client openai.Client
	ctx    context.Context
}

func params(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("grüße 🌍")}}
}

func (p player) models() (seen, error) {
	page, err := p.client.Models.List(p.ctx)
	if err != nil {
		return nil, err
	}
	listed := false
	for _, m := range page.Data {
		listed = listed || m.ID == "m"
	}
	one, err := p.client.Models.Get(p.ctx, "m")
	if err != nil {
		return nil, err
	}
	return seen{"listed": listed, "one": one.ID}, nil
}

func (p player) chat() (seen, error) {
	q := params("m")
	q.MaxTokens = openai.Int(5)
	r, err := p.client.Chat.Completions.New(p.ctx, q)
	if err != nil {
		return nil, err
	}
	return seen{"text": r.Choices[0].Message.Content != "", "usage": r.Usage.CompletionTokens}, nil
}

func (p player) plain(model string, opts ...option.RequestOption) (seen, error) {
	r, err := p.client.Chat.Completions.New(p.ctx, params(model), opts...)
	if err != nil {
		return nil, err
	}
	return seen{"text": r.Choices[0].Message.Content}, nil
}

// read adds a stream up and returns what it said, also when it broke.
func (p player) read(q openai.ChatCompletionNewParams, opts ...option.RequestOption) (openai.ChatCompletionAccumulator, error) {
	stream := p.client.Chat.Completions.NewStreaming(p.ctx, q, opts...)
	defer stream.Close()
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	return acc, stream.Err()
}

func (p player) collect(model string, opts ...option.RequestOption) (seen, error) {
	acc, err := p.read(params(model), opts...)
	if len(acc.Choices) == 0 {
		return seen{"text": ""}, err
	}
	return seen{"text": acc.Choices[0].Message.Content, "finish": acc.Choices[0].FinishReason}, err
}

func (p player) stream() (seen, error) {
	q := params("m")
	q.MaxTokens = openai.Int(5)
	q.StreamOptions.IncludeUsage = openai.Bool(true)
	acc, err := p.read(q)
	if err != nil {
		return nil, err
	}
	return seen{"text": acc.Choices[0].Message.Content != "", "finish": acc.Choices[0].FinishReason, "usage": acc.Usage.CompletionTokens}, nil
}

// agent is an agent loop: streamed tool calls, two tools run, their results
// sent, an answer streamed.
func (p player) agent() (seen, error) {
	q := params("agent")
	for _, name := range []string{"weather", "time"} {
		q.Tools = append(q.Tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: name,
			Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}}}}))
	}
	calls := 0
	for rounds := 1; ; rounds++ {
		acc, err := p.read(q)
		if err != nil {
			return nil, err
		}
		answer := acc.Choices[0].Message
		if len(answer.ToolCalls) == 0 {
			return seen{"text": answer.Content, "calls": calls, "rounds": rounds}, nil
		}
		q.Messages = append(q.Messages, answer.ToParam())
		for _, call := range answer.ToolCalls {
			calls++
			var args struct{ City string }
			if err := json.NewDecoder(strings.NewReader(call.Function.Arguments)).Decode(&args); err != nil {
				return nil, err
			}
			q.Messages = append(q.Messages, openai.ToolMessage(call.Function.Name+" in "+args.City, call.ID))
		}
	}
}

func (p player) limitedThenServed() (seen, error) {
	begun := time.Now()
	s, err := p.plain("says-429-once", option.WithMaxRetries(1))
	if err != nil {
		return nil, err
	}
	s["waited"] = time.Since(begun) >= time.Second
	return s, nil
}

func (p player) leaves() (seen, error) {
	stream := p.client.Chat.Completions.NewStreaming(p.ctx, params("leaves"))
	defer stream.Close()
	if !stream.Next() {
		return nil, stream.Err()
	}
	return seen{"text": stream.Current().Choices[0].Delta.Content}, nil
}
