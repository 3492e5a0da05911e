package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/gateway"
	"github.com/rhizome-router/rhizome/internal/testkit"
)

// oddStream is an event stream with everything that the format allows: all
// forms of line ends, comments, ids, retry times, data over several lines.
const oddStream = ": a comment\n\nid: 1\nevent: x\nretry: 10\ndata: {\"a\":\ndata: 1}\n\r\ndata:no space\r\rdata: {\"choices\":[{\"delta\":{\"content\":\"é\U0001F680\"}}]}\r\n\r\n" +
	"\ufeffdata\n\nunknown: y\n\n:\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"

// stream posts a streaming request and returns its answer as it begins.
func stream(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	resp, err := client.Post(url+chatPath, "application/json", strings.NewReader(askedStream))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestBR48_EveryByteLeavesAtOnce cuts a stream at every offset: the first part
// must be with the client before the worker sends the second.
func TestBR48_EveryByteLeavesAtOnce(t *testing.T) {
	w := testkit.NewWorker(t)
	f := newFront(t, gateway.Config{}, w.URL())
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	for cut := range len(oddStream) {
		arrived := make(chan struct{})
		script := testkit.Script{testkit.Send(testkit.SSEHead())}
		if cut > 0 {
			script = append(script, testkit.Send(testkit.Chunk(oddStream[:cut])))
		}
		w.Add(append(script, testkit.Wait(arrived), testkit.Send(testkit.Chunk(oddStream[cut:]), testkit.Chunk(""))))
		resp := stream(t, client, f.url) // the head alone is out before any byte
		first := make([]byte, cut)
		if _, err := io.ReadFull(resp.Body, first); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		close(arrived)
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := string(first) + string(rest); got != oddStream || err != nil {
			t.Fatalf("cut at %d: got %q, %v", cut, got, err)
		}
	}
}

// TestDiffStreamFraming cuts what is on the wire, chunk framing and head
// included, at every offset, and sends it byte by byte.
func TestDiffStreamFraming(t *testing.T) {
	d := differ(t)
	wire := testkit.SSEHead() + testkit.Chunk(oddStream[:100]) + testkit.Chunk(oddStream[100:]) + testkit.Chunk("")
	direct := d.Via(t, d.Worker.URL(), request(chatPath, askedStream), testkit.Script{testkit.Send(wire)})
	for cut := range len(wire) {
		routed := d.Via(t, d.Router, request(chatPath, askedStream), testkit.Script{testkit.SendSplit(wire, cut)})
		testkit.Same(t, direct, routed)
	}
	routed := d.Via(t, d.Router, request(chatPath, askedStream), testkit.Script{testkit.SendSplit(wire, every(len(wire))...)})
	testkit.Same(t, direct, routed)
}

// TestBR03_DeathAtEveryByteIsNeverAnEnd lets a worker die after every byte of a
// stream, by end and by reset: what the client has got so far is what the worker
// sent, then comes one error event, and the transfer is broken.
func TestBR03_DeathAtEveryByteIsNeverAnEnd(t *testing.T) {
	for name, end := range map[string]testkit.Step{"FIN": testkit.FIN(), "RST": testkit.RST()} {
		t.Run(name, func(t *testing.T) {
			d := differ(t)
			wire := testkit.SSE(`{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
			body := `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
			for cut := range len(wire) {
				e := d.Via(t, d.Router, request(chatPath, askedStream), testkit.Script{testkit.SendFirst(wire, cut), end})
				if problem := notTold(e.Answer, body); problem != "" {
					t.Errorf("dead after byte %d: %s: %d %q %q", cut, problem, e.Answer.Status, e.Answer.Body, e.Answer.Broken)
				}
			}
		})
	}
}

// notTold says what is wrong with the answer to a request whose worker died
// before the end of body.
func notTold(a testkit.Answer, body string) string {
	if a.Status == 502 {
		if a.Broken != "" || !strings.HasPrefix(a.Body, `{"error":`) {
			return "not a plain error"
		}
		return ""
	}
	said, told, found := strings.Cut(a.Body, `data: {"error":`)
	switch {
	case a.Status != 200 || a.Broken == "":
		return "a regular end"
	case !found:
		return "no error event"
	case !strings.HasPrefix(body, strings.TrimSuffix(said, "\n\n")) && !strings.HasPrefix(body, said):
		return "other bytes than the worker's"
	case strings.Contains(told, "[DONE]") || strings.Contains(told, "finish_reason") || !strings.HasSuffix(told, "}\n\n"):
		return fmt.Sprintf("a bad error event %q", told)
	}
	return ""
}

// TestBR03_ShortBodiesAreCutShort does the same with plain bodies, of a known
// length and in chunks, at some offsets of the head and all of the body.
func TestBR03_ShortBodiesAreCutShort(t *testing.T) {
	d := differ(t)
	for _, wire := range []string{
		testkit.JSON(200, `{"id":"0123456789"}`),
		testkit.Chunked(200, []string{`{"id":`, `"0123456789"}`}, "Content-Type: application/json"),
	} {
		for cut := range len(wire) {
			e := d.Via(t, d.Router, request(chatPath, asked), testkit.Script{testkit.SendFirst(wire, cut), testkit.FIN()})
			switch a := e.Answer; {
			case a.Status == 502 && a.Broken == "" && strings.HasPrefix(a.Body, `{"error":`):
			case a.Status == 200 && a.Broken != "" && strings.HasPrefix(`{"id":"0123456789"}`, a.Body):
			default:
				t.Errorf("cut at %d of %d: %d %q %q", cut, len(wire), a.Status, a.Body, a.Broken)
			}
		}
	}
}
