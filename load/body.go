package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/rhizome-router/rhizome/workload"
)

// body is one request body that several requests send at the same time. It is
// built once and read by all; its buffer goes back to the pool when the last
// holder lets go. The HTTP transport may still read a body after it returned
// the response, so every reader holds the body until the transport closes it.
type body struct {
	buf    []byte
	header http.Header // besides those of every request; nil for none
	refs   atomic.Int32
	home   *bodies
}

// bodies is a pool of bodies.
type bodies struct{ pool sync.Pool }

// get returns an empty body held once.
func (p *bodies) get() *body {
	b, ok := p.pool.Get().(*body)
	if !ok {
		b = &body{home: p}
	}
	b.buf = b.buf[:0]
	b.refs.Store(1)
	return b
}

func (b *body) hold() { b.refs.Add(1) }

func (b *body) release() {
	if b.refs.Add(-1) == 0 {
		b.home.pool.Put(b)
	}
}

// reader holds the body until its Close.
func (b *body) reader() io.ReadCloser {
	b.hold()
	r := &bodyReader{of: b}
	r.Reset(b.buf)
	return r
}

type bodyReader struct {
	bytes.Reader
	of     *body
	closed atomic.Bool
}

func (r *bodyReader) Close() error {
	if r.closed.CompareAndSwap(false, true) {
		r.of.release()
	}
	return nil
}

// request makes a POST of the body, which the caller holds at least until the
// round trip returned (the transport may ask for the body again).
func (b *body) request(url string) (*http.Request, error) {
	req, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", url, err)
	}
	req.Body = b.reader()
	req.GetBody = func() (io.ReadCloser, error) { return b.reader(), nil }
	req.ContentLength = int64(len(b.buf))
	maps.Copy(req.Header, b.header)
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

const (
	chatPath       = "/v1/chat/completions"
	completionPath = "/v1/completions"
)

// format writes request bodies for one model.
type format struct{ model []byte } // as a JSON string

func newFormat(model string) (format, error) {
	quoted, err := json.Marshal(model)
	if err != nil {
		return format{}, fmt.Errorf("model name %q: %w", model, err)
	}
	return format{quoted}, nil
}

// chat appends a chat completion with one user message, the prompt of r.
func (f format) chat(dst []byte, text workload.Text, r *workload.Request, maxTokens int) []byte {
	dst = f.open(dst)
	dst = append(dst, `,"messages":[{"role":"user","content":"`...)
	dst = text.AppendPrompt(dst, r)
	dst = append(dst, `"}]`...)
	return f.close(dst, maxTokens)
}

// completion appends a completion whose prompt is the token ids of r.
func (f format) completion(dst []byte, text workload.Text, r *workload.Request, maxTokens int) []byte {
	dst = f.open(dst)
	dst = append(dst, `,"prompt":`...)
	dst = text.AppendPromptTokens(dst, r)
	return f.close(dst, maxTokens)
}

func (f format) open(dst []byte) []byte {
	dst = append(dst, `{"model":`...)
	return append(dst, f.model...)
}

// close asks for exactly maxTokens tokens (ignore_eos, which vLLM and SGLang
// take), streamed, with usage at the end.
func (f format) close(dst []byte, maxTokens int) []byte {
	dst = append(dst, `,"max_tokens":`...)
	dst = strconv.AppendInt(dst, int64(maxTokens), 10)
	return append(dst, `,"temperature":0,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`...)
}
