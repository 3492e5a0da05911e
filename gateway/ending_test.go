package gateway

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// TestRule02_AStreamWithoutItsLastEventIsBroken, however cleanly its body ends:
// each API has events of its own that one has to come last.
func TestRule02_AStreamWithoutItsLastEventIsBroken(t *testing.T) {
	messages, responses := "/v1/messages", "/v1/responses"
	delta := "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n"
	created := `data: {"type":"response.created","response":{"id":"resp_1"}}` + "\n\n"
	long := strings.Repeat("word ", tapWindowBytes)
	for _, c := range []struct {
		path, stream string
		whole        bool
	}{
		{messages, delta + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", true},
		{messages, delta + "data: {\"type\": \"message_stop\"}\r\n\r\n", true},
		{messages, delta + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\ndata: [DONE]\n\n", true},
		{messages, delta, false},
		{messages, "", false},
		{messages, delta + "data: [DONE]\n\n", false},
		{messages, delta + "event: message_stop\ndata: {\"type\"", false},
		{messages, `data: {"type":"content_block_delta","delta":{"text":"\"type\":\"message_stop\" and event: message_stop\n"}}` + "\n\n", false},
		{responses, created + `data: {"type":"response.completed","response":{"id":"resp_1"}}` + "\n\n", true},
		{responses, created + `data: {"response":{"status":"incomplete"},"type":"response.incomplete"}` + "\n\n", true},
		{responses, created + "event: response.failed\ndata: {\"response\":{}}\n\n", true},
		{responses, created + "event: response.completed\ndata: {\"response\":\"" + long + "\"}\n\n", true},
		{responses, created + "event: response.completed\ndata: {\"response\":\"" + long, false},
		{responses, created + "data: {\"x\":\"" + long + "\"}\n\n", false},
		{responses, created + "event: response.completed.not\ndata: {}\n\n", false},
	} {
		script := testkit.Script{testkit.Send(testkit.SSEHead())}
		if c.stream != "" {
			script = append(script, testkit.Send(testkit.Chunk(c.stream)))
		}
		r := newRig(t, Config{}, testkit.NewWorker(t, append(script, testkit.Send(testkit.LastChunk()))))
		a := r.post(c.path, streamBody)
		r.stop()
		if c.whole && (a.err != nil || r.picker.results() != "completed") {
			t.Errorf("%s %.200q ended with %v, %s", c.path, c.stream, a.err, r.picker.results())
		}
		if !c.whole && (!errors.Is(a.err, io.ErrUnexpectedEOF) || !strings.Contains(a.body, "without its regular end") || r.picker.results() != "failed") {
			t.Errorf("%s %.200q passed as whole: %v, %s", c.path, c.stream, a.err, r.picker.results())
		}
	}
}
