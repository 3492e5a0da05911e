package prompt

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// isObject reports what another reader of JSON thinks of a body.
func isObject(body []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := d.ReadValue()
	if err != nil || v.Kind() != '{' {
		return false
	}
	_, err = d.ReadToken()
	return errors.Is(err, io.EOF)
}

var seeds = []string{
	`{}`, `{"model":"m","prompt":[1,2,30]}`, `{"a":[{"b":[[],{}]},-0.5e+10,true,false,null,"\u00e9\"\\"]}`,
	`{"model":"a","model":"b","messages":[{"role":"user","content":"long enough to be skipped in words \n"}]}`,
	" {\t\"n\" :\r\n 1 } ", `{"n":01}`, `{"n":1.}`, `{"n":-}`, `{"n":1e}`, `{"a":tru}`, `{"a":"` + "\x01" + `"}`, `{"a":"\x"}`,
	`{"a":"\u12g4"}`, `{"a" 1}`, `{a:1}`, `{"a":1,}`, `{"a":"b";"c":1}`, `{"a":["b":"c"]}`, `{"a";"b"}`, `{"a":"b",,"c":1}`, `{"a":{,"b":1}}`, `{"a":[1,2,3,04]}`, `{"a":[10, 200,]}`, `{"a":[10, 20 30]}`, `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":1}{}`, `[1]`, `"x"`, ``, `{"a":"` + "\xff\xfe" + `"}`,
	`{"mo\u0064el":"m","x":1e400,"y":18446744073709551615}`, `{"input":["a",[1],{"b":"c"}],"system":[{"text":"x"}],"instructions":"i"}`,
}

// The scanner takes what a reference reader takes, and nothing else.
func FuzzScanAcceptsJSONObjects(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 1<<16 {
			return // within the depth that both allow
		}
		var s Scanner
		err := s.Scan(body)
		if err == nil {
			err = s.End()
		}
		if want := isObject(body); (err == nil) != want && bytes.Count(body, []byte("[")) < 5000 && bytes.Count(body, []byte("{")) < 5000 {
			t.Fatalf("%q: %v, but a reference reader says %v", body, err, want)
		}
		if se, ok := errors.AsType[*SyntaxError](err); err != nil && (!ok || se.Offset < 0 || se.Offset > int64(len(body))) {
			t.Fatalf("%q: %v", body, err)
		}
	})
}

// However a body is cut into reads, the same is read from it.
func FuzzScanIgnoresCuts(f *testing.F) {
	for i, s := range seeds {
		f.Add([]byte(s), uint(i))
	}
	f.Fuzz(func(t *testing.T, body []byte, cuts uint) {
		var whole, pieces Scanner
		errWhole := whole.Scan(body)
		for n := 0; n < len(body); n += 1 + int(cuts%7) {
			pieces.Scan(body[:n])
		}
		errPieces := pieces.Scan(body)
		if !reflect.DeepEqual(errWhole, errPieces) {
			t.Fatalf("%q: %v in one piece, %v in several", body, errWhole, errPieces)
		}
		if !reflect.DeepEqual(whole.members, pieces.members) {
			t.Fatalf("%q: %+v in one piece, %+v in several", body, whole.members, pieces.members)
		}
	})
}

// Of a beginning, what is whole counts: the prefixes of the whole body's
// chunks, never others.
func TestABeginningHasTheFirstChunks(t *testing.T) {
	body := `{"model":"m","stream":true,"messages":[{"role":"system","content":"` + strings.Repeat("s", 3000) + `"},{"role":"user","content":"` +
		strings.Repeat("u", 2000) + `"}],"max_tokens":7}`
	want := parse(t, Chat, body).Chunks()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(30, len(body)).Draw(t, "bytes")
		var s Scanner
		if err := s.Scan([]byte(body[:n])); err != nil {
			t.Fatal(err)
		}
		r, err := s.Request(Chat, []byte(body[:n]), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Model([]byte(body[:n])) != "m" || r.Model != "m" || !r.Stream || len(r.Chunks()) > len(want) {
			t.Fatalf("%d bytes gave %+v", n, r)
		}
		for i, c := range r.Chunks() {
			if c != want[i] {
				t.Fatalf("chunk %d of %d bytes is %v, want %v", i, n, c, want[i])
			}
		}
	})
}

func TestConversationsOfOtherKinds(t *testing.T) {
	messages := parse(t, Messages, `{"model":"m","system":[{"type":"text","text":"a"}],"messages":[{"role":"user","content":"b"}],"tools":[{}]}`)
	if len(messages.Chunks()) != 3 {
		t.Errorf("%d chunks of tools, system and messages", len(messages.Chunks()))
	}
	responses := parse(t, Responses, `{"model":"m","instructions":"a","input":"b","max_output_tokens":9,"previous_response_id":"resp_1","conversation":{"id":"conv_1"},"prompt_cache_key":"k"}`)
	if len(responses.Chunks()) != 2 || responses.MaxTokens != 9 || responses.Previous != "resp_1" || responses.CacheKey != "k" || responses.Conversation != "conv_1" {
		t.Errorf("%+v", responses)
	}
	if r := parse(t, Responses, `{"model":"m","input":[{"role":"user","content":"b"},{"x":1}],"conversation":"conv_2"}`); len(r.Chunks()) != 2 || r.Conversation != "conv_2" {
		t.Errorf("%+v", r)
	}
}

// A renamed model gives the keys of its new name; where it stands in the body
// is told.
func TestRenaming(t *testing.T) {
	body := []byte(`{"model": "alias","prompt":[1,2,3,4]}`)
	var s Scanner
	s.Scan(body)
	r, err := s.Request(Completion, body, func(m string) string { return m + "-2" })
	if err != nil || r.Model != "alias-2" || string(body[r.ModelAt.Start:r.ModelAt.End]) != `"alias"` {
		t.Fatalf("%+v, %v", r, err)
	}
	want := parse(t, Completion, `{"model":"alias-2","prompt":[1,2,3,4]}`)
	if r.TokenKeys(Form{BlockTokens: 4})[0] != want.TokenKeys(Form{BlockTokens: 4})[0] {
		t.Error("the keys are not those of the new name")
	}
}
