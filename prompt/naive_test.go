package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/kv"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// naive is what another reader of JSON makes of a body that Parse takes.
type naive struct {
	model  string
	keys   []kv.Key
	tokens []uint32
}

func readNaive(kind Kind, body []byte) (n naive, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return n, err
	}
	var salt string
	_ = json.Unmarshal(all["model"], &n.model)
	_ = json.Unmarshal(all["cache_salt"], &salt)
	key, longest, before := kv.Root(n.model, fmt.Sprint("bytes:", int(kind)), salt), 1024, 0
	add := func(piece []byte) {
		for len(piece) > 0 {
			for before >= 128*longest {
				longest *= 2
			}
			chunk := piece[:min(len(piece), longest)]
			piece, before = piece[len(chunk):], before+len(chunk)
			key = kv.Next(key, kv.Content(xxh3.Hash(chunk)))
			n.keys = append(n.keys, key)
		}
	}
	part := func(name string, elementsCount bool) {
		raw := all[name]
		var elements []json.RawMessage
		if len(raw) == 0 || string(raw) == "null" {
			return
		}
		if elementsCount {
			_ = json.Unmarshal(raw, &elements)
		}
		if len(elements) > 0 && strings.IndexByte("-0123456789", elements[0][0]) < 0 {
			for _, e := range elements {
				add(e)
			}
		} else if name != "messages" {
			add(raw)
		}
	}
	switch kind {
	case Chat:
		part("tools", false)
		part("messages", true)
	case Messages:
		part("tools", false)
		part("system", true)
		part("messages", true)
	case Responses:
		part("tools", false)
		part("instructions", false)
		part("input", true)
	case Completion, Embedding:
		longest = 256
		raw := all[map[Kind]string{Completion: "prompt", Embedding: "input"}[kind]]
		var several []json.RawMessage
		if json.Unmarshal(raw, &several) == nil && len(several) > 0 && (several[0][0] == '"' || several[0][0] == '[') {
			raw = several[0]
		}
		if len(raw) > 0 && raw[0] == '"' {
			add(raw)
		}
		_ = json.Unmarshal(raw, &n.tokens)
	}
	return n, nil
}

// checkNaive holds what is read of a body, in pieces that arrive one after the
// other and with memory used before, against what a naive reader reads.
func checkNaive(fatalf func(string, ...any), s *Scanner, r *Request, kind Kind, body []byte, pieces []int) {
	s.Reset()
	at := 0
	for _, n := range pieces {
		at = min(len(body), at+n)
		_ = s.Scan(body[:at:at])
	}
	err := s.Scan(body)
	if err == nil {
		err = s.End()
	}
	if err == nil {
		err = s.Fill(r, kind, body, nil)
	}
	fresh, freshErr := Parse(kind, body)
	if fmt.Sprint(err) != fmt.Sprint(freshErr) {
		fatalf("%q: %v with used memory, %v without", body, err, freshErr)
	}
	if err != nil {
		return
	}
	want, err := readNaive(kind, body)
	if err != nil {
		fatalf("%q: encoding/json says %v", body, err)
	}
	form := Form{BlockTokens: 2}
	if r.Model != want.model || !slices.Equal(r.ChunkKeys(), want.keys) || !slices.Equal(r.Tokens, want.tokens) ||
		!slices.Equal(r.TokenKeys(form), chain(nil, want.model, r.Salt, want.tokens, form)) {
		fatalf("%d: %q: read as %q, %v, %v, want %q, %v, %v", kind, body, r.Model, r.ChunkKeys(), r.Tokens, want.model, want.keys, want.tokens)
	}
	if !slices.Equal(fresh.ChunkKeys(), r.ChunkKeys()) || fresh.whole != r.whole || fresh.TextBytes != r.TextBytes || fresh.MediaItems != r.MediaItems ||
		!slices.Equal(fresh.bounds, r.bounds) || fresh.Conversation != r.Conversation || fresh.Hints != r.Hints || fresh.IncludeUsage != r.IncludeUsage {
		fatalf("%q: %+v with used memory, %+v without", body, r, fresh)
	}
}

// The keys of a body are those that a naive reader of JSON and a naive cutter of
// text make of it, however it arrives, and whatever was read before.
func TestKeysAreTheNaiveOnes(t *testing.T) {
	var s Scanner
	var r Request
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{Chat, Completion, Embedding, Messages, Responses}).Draw(t, "kind")
		body := drawBody(t)
		checkNaive(t.Fatalf, &s, &r, kind, body, rapid.SliceOfN(rapid.IntRange(0, 1500), 0, 20).Draw(t, "pieces"))
	})
}

// Long prompts too, whose chunks grow, with their parts in another order than
// templates have.
func TestKeysOfLongPromptsAreTheNaiveOnes(t *testing.T) {
	var s Scanner
	var r Request
	text := strings.Repeat(`some words of a \"long\" text, `, 20_000)
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"` + text + `"},{"role":"user","content":"hi"}],"tools":[{"x":"` + text[:100_000] + `"}],"model":"m"}`,
		`{"tools":[{"x":"` + text[:300_000] + `"}],"system":"` + text[:3000] + `","messages":[{"role":"user","content":"` + text + `"}],"messages":[{"a":"` + text + `"}]}`,
		`{"prompt":"` + text + `","input":["` + text + `"]}`,
		`{"input":"` + text + `","instructions":"` + text[:5000] + `","tools":{}}`,
	} {
		for _, kind := range []Kind{Chat, Messages, Completion, Embedding, Responses} {
			checkNaive(t.Fatalf, &s, &r, kind, []byte(body), []int{1000, 64 << 10, 1, 128 << 10, 300_000})
		}
	}
}

func FuzzKeysAreTheNaiveOnes(f *testing.F) {
	for i, seed := range seeds {
		f.Add(uint8(i), []byte(seed), uint16(i))
	}
	var s Scanner
	var r Request
	f.Fuzz(func(t *testing.T, kind uint8, body []byte, piece uint16) {
		if len(body) > 1<<16 || bytes.Count(body, []byte("[")) > 5000 || bytes.Count(body, []byte("{")) > 5000 {
			return // within the depth that both allow
		}
		checkNaive(t.Fatalf, &s, &r, []Kind{Chat, Completion, Embedding, Messages, Responses}[kind%5], body, slices.Repeat([]int{int(piece)}, 8))
	})
}

// drawBody makes an object of members that routing reads, and others.
func drawBody(t *rapid.T) []byte {
	d := drawer{t: t}
	d.b.WriteString(d.space() + "{")
	for i := range d.below(8) {
		if i > 0 {
			d.b.WriteString(d.space() + ",")
		}
		name := rapid.SampledFrom([]string{"model", `mo\u0064el`, "messages", "messages", "tools", "system", "instructions", "prompt", "prompt", "input", "input", "cache_salt", "other"}).Draw(t, "name")
		if d.below(6) == 0 {
			name = rapid.SampledFrom(wanted[:]).Draw(t, "wanted")
		}
		d.b.WriteString(d.space() + `"` + name + `"` + d.space() + ":" + d.space())
		switch {
		case (strings.HasSuffix(name, "el") || name == "cache_salt") && d.below(30) > 0:
			d.text(10)
		case name == "messages" && d.below(30) > 0:
			d.array(func() { d.object(2) })
		case (name == "prompt" || name == "input") && d.below(4) == 0:
			d.array(func() { d.text(20) })
		case (name == "prompt" || name == "input") && d.below(2) > 0:
			d.array(func() { d.b.WriteString(fmt.Sprint(d.below(200_000))) })
		default:
			d.value(3)
		}
	}
	d.b.WriteString(d.space() + "}" + d.space())
	return []byte(d.b.String())
}

type drawer struct {
	t *rapid.T
	b strings.Builder
}

func (d *drawer) below(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "n") }

func (d *drawer) space() string {
	return rapid.SampledFrom([]string{"", "", "", " ", " ", "\n  ", "\t\r\n"}).Draw(d.t, "space")
}

func (d *drawer) text(most int) {
	piece := rapid.SampledFrom([]string{"a", "word ", `\n`, `\"`, `\\`, `\u00e9`, `\ud83d\ude00`, "東", "data:image/png;base64,", strings.Repeat("long ", 60)})
	d.b.WriteString(`"`)
	for range d.below(most) {
		d.b.WriteString(piece.Draw(d.t, "text"))
	}
	d.b.WriteString(`"`)
}

func (d *drawer) array(element func()) {
	d.b.WriteString("[" + d.space())
	for i := range d.below(8) {
		if i > 0 {
			d.b.WriteString(d.space() + "," + d.space())
		}
		element()
	}
	d.b.WriteString(d.space() + "]")
}

func (d *drawer) object(depth int) {
	d.b.WriteString("{" + d.space())
	for i := range d.below(4) {
		if i > 0 {
			d.b.WriteString("," + d.space())
		}
		name := rapid.SampledFrom([]string{"role", "content", "image_url", "id", "type", "ttl", "agent_hints", "osl", "include_usage", "x"}).Draw(d.t, "name")
		d.b.WriteString(`"` + name + `"` + d.space() + ":" + d.space())
		d.value(depth - 1)
	}
	d.b.WriteString("}")
}

func (d *drawer) value(depth int) {
	choices := 6
	if depth <= 0 {
		choices = 4
	}
	switch d.below(choices) {
	case 0, 1:
		d.text(20)
	case 2:
		d.b.WriteString(rapid.SampledFrom([]string{"0", "-1", "1.5e3", "12", "123456789", "99999999999"}).Draw(d.t, "number"))
	case 3:
		d.b.WriteString(rapid.SampledFrom([]string{"true", "false", "null", `"user"`, `"assistant"`}).Draw(d.t, "word"))
	case 4:
		d.array(func() { d.value(depth - 1) })
	case 5:
		d.object(depth)
	}
}
