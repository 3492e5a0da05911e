package gateway

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"

	"github.com/rhizome-router/rhizome/prompt"
)

// maxFieldBytes bounds a form field that routing reads, and maxParts the parts
// of a form: engines' own servers take at most 1000 files and 1000 fields.
const (
	maxFieldBytes = 1 << 10
	maxParts      = 2000
)

// form finds the fields model and stream of a multipart body, wherever they
// stand: what comes before them is held in memory with the rest of the body.
type form struct {
	boundary string
	ended    bool
}

// formOf returns a reader for a multipart body; nil when it is none.
func formOf(contentType string) (*form, error) {
	t, params, err := mime.ParseMediaType(contentType)
	if !strings.HasPrefix(t, "multipart/") {
		return nil, nil
	}
	if b := params["boundary"]; err == nil && b != "" && len(b) <= 70 { // RFC 2046, section 5.1.1
		return &form{boundary: b}, nil
	}
	return nil, errBodyForm
}

// Scan waits for more: a form is read when there is enough of it.
func (f *form) Scan([]byte) error { return nil }

// End tells that the form is whole.
func (f *form) End() error { f.ended = true; return nil }

// Model returns the field of that name.
func (f *form) Model(body []byte) string {
	model, _, _ := f.fields(body)
	return model
}

// Request returns a request that is routed by its model alone.
func (f *form) Request(_ prompt.Kind, body []byte, rename func(string) string) (*prompt.Request, error) {
	model, stream, err := f.fields(body)
	if err != nil && f.ended {
		return nil, errBodyForm
	}
	return &prompt.Request{Kind: prompt.Other, Model: rename(model), Stream: stream, N: 1, Prompts: 1}, nil
}

// fields reads what is there of the form. It may name one model only.
func (f *form) fields(body []byte) (model string, stream bool, err error) {
	r := multipart.NewReader(bytes.NewReader(body), f.boundary)
	for n := 0; ; n++ {
		if n == maxParts {
			return "", false, errBodyForm
		}
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return model, stream, nil
		}
		if err != nil {
			return model, stream, err
		}
		name := part.FormName()
		if part.FileName() != "" || name != "model" && name != "stream" {
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxFieldBytes))
		if err != nil {
			return model, stream, err // its end has not arrived
		}
		switch text := strings.TrimSpace(string(value)); name {
		case "model":
			if model != "" && text != model { // servers differ in which they take, and in what names one
				return "", false, errBodyForm
			}
			model = text
		case "stream":
			stream = strings.EqualFold(text, "true") || text == "1"
		}
	}
}
