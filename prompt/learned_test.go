package prompt

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rhizome-router/rhizome/clock"
	"pgregory.net/rapid"
)

var form4 = Form{BlockTokens: 4}

func newTestLearned() *Learned {
	l := newLearned(0, 1<<10)
	l.SetForms([]Form{form4, {BlockTokens: 16}, {BlockTokens: 16, SaltInRoot: true}})
	return l
}

// words returns so many words that no other seed gives.
func words(seed string, n int) string {
	random := clock.Rand(1, seed)
	var s strings.Builder
	for range n {
		fmt.Fprintf(&s, "%s ", word5(random))
	}
	return s.String()
}

func word5(random *rand.Rand) string {
	b := make([]byte, 5)
	for i := range b {
		b[i] = byte('a' + random.IntN(26))
	}
	return string(b)
}

// chat writes a body of messages that alternate: system, user, assistant, user …
func chat(extra string, texts ...string) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m"` + extra + `,"messages":[`)
	for i, text := range texts {
		role := "system"
		if i > 0 {
			role = [...]string{"assistant", "user"}[i%2]
			b.WriteByte(',')
		}
		quoted, _ := json.Marshal(text)
		fmt.Fprintf(&b, `{"role":"%s","content":%s}`, role, quoted)
	}
	return []byte(b.String() + `]}`)
}

// A long head is learned when it is met first and counts from the second prompt
// on; what is behind it when it is met again.
func TestHeadsAndTurnsAreLearned(t *testing.T) {
	for name, e := range fakeEngines {
		t.Run(name, func(t *testing.T) {
			l := newTestLearned()
			head := words("head", 1200)
			first := chat("", head, "one")
			if n := e.check(t, l, first, form4); n != 0 {
				t.Fatalf("%d tokens known before anything was told", n)
			}
			e.teach(t, l, first)
			if n := e.check(t, l, chat("", head, "two"), form4); n != 0 {
				t.Fatalf("%d tokens known of one witness alone", n)
			}
			e.teach(t, l, chat("", head, "two"))
			n := e.check(t, l, chat("", head, "three"), form4)
			if want := !e.userFirst; (n > 1000) != want {
				t.Fatalf("%d tokens of the head known", n)
			}
			// A conversation: whole turns come to be known, as far as they stay what
			// they were.
			turns := []string{head, words("u1", 200)}
			for i := range 8 {
				e.teach(t, l, chat("", turns...))
				turns = append(turns, "<think>"+words(fmt.Sprint("t", i), 50)+"</think>"+words(fmt.Sprint("a", i), 100), words(fmt.Sprint("u", i+2), 100))
			}
			n = e.check(t, l, chat("", turns...), form4)
			whole, _ := e.render(t, chat("", turns...))
			if n < len(whole)/2 {
				t.Errorf("%d of %d tokens known after 8 turns", n, len(whole))
			}
			for _, f := range []Form{{BlockTokens: 16}, {16, true}} {
				e.check(t, l, chat("", turns...), f)
			}
			if n := e.check(t, l, chat(`,"reasoning_effort":"high"`, turns...), form4); n != 0 {
				t.Errorf("%d tokens known under another head", n)
			}
			if n := e.check(t, l, chat(`,"temperature":0.3,"seed":7`, turns...), form4); n == 0 {
				t.Error("sampling is no matter of the prompt")
			}
			if n := e.check(t, l, chat(`,"cache_salt":"s"`, turns...), form4); n != 0 {
				t.Errorf("%d tokens known under a salt", n)
			}
			next := e
			next.date = "2 Dec 2026"
			if n := next.check(t, l, chat("", turns...), form4); n != 0 {
				t.Errorf("%d tokens known of a template of another class", n)
			}
		})
	}
}

// Whatever is asked in whatever order, what is known is what the engine makes of
// a prompt.
func TestWhatIsKnownIsNeverWrong(t *testing.T) {
	names := make([]string, 0, len(fakeEngines))
	for name := range fakeEngines {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(rt *rapid.T) {
		l := newTestLearned()
		l.maxBytes = int64(rapid.SampledFrom([]int{4000, 1 << 20}).Draw(rt, "max"))
		engines := [2]fakeEngine{fakeEngines[rapid.SampledFrom(names).Draw(rt, "engine")], fakeEngines[rapid.SampledFrom(names).Draw(rt, "other")]}
		texts := []string{words("x", 60), "short", "<think>" + words("y", 60) + "</think>" + words("z", 80), words("w", 300)}
		roles := []string{"user", "user", "assistant", "assistant", "system", "tool"}
		tools := []string{"", `,"tools":[{"name":"a"}]`, `,"tool_choice":"none"`}
		message := func() string {
			quoted, _ := json.Marshal(rapid.SampledFrom(texts).Draw(rt, "text"))
			calls := ""
			if rapid.IntRange(0, 3).Draw(rt, "calls") == 0 {
				calls = `,"tool_calls":[{"name":"f",  "arguments":{"b":1,"a":[1, 2]}}]`
			}
			return fmt.Sprintf(`{"role":"%s","content":%s%s}`, rapid.SampledFrom(roles).Draw(rt, "role"), quoted, calls)
		}
		var talks [][]string
		for range rapid.IntRange(5, 40/raceSlowdown).Draw(rt, "steps") {
			var talk []string
			if len(talks) > 0 {
				old := rapid.SampledFrom(talks).Draw(rt, "talk")
				talk = append(talk, old[:rapid.IntRange(0, len(old)).Draw(rt, "keep")]...)
			}
			for range rapid.IntRange(1, 3).Draw(rt, "more") {
				talk = append(talk, message())
			}
			talks = append(talks, talk)
			body := []byte(`{"messages":[` + strings.Join(talk, ",") + `],"model":"m"` + rapid.SampledFrom(tools).Draw(rt, "tools") + `}`)
			e := engines[rapid.IntRange(0, 1).Draw(rt, "which")]
			if _, ok := e.render(t, body); !ok {
				continue
			}
			e.check(t, l, body, form4)
			e.check(t, l, body, Form{BlockTokens: 16})
			e.teach(t, l, body)
			checkBooks(t, l)
		}
	})
}

// checkBooks holds the sums against the entries.
func checkBooks(t testing.TB, l *Learned) {
	t.Helper()
	var bytes int64
	n, trust, unusable := 0, 0, 0
	for e := l.oldest; e != nil; e = e.newer {
		n++
		bytes += e.bytes()
		switch e.state {
		case trusted:
			trust++
		case refused:
			unusable++
		}
		if l.entries[e.key] != e {
			t.Fatal("an entry in the list is not in the map")
		}
	}
	s := l.Stats()
	if n != len(l.entries) || bytes != s.Bytes || trust != s.Trusted || unusable != s.Unusable {
		t.Fatalf("%d entries, %d B, %d trusted, %d unusable: %+v", n, bytes, trust, unusable, s)
	}
	if s.Bytes > l.maxBytes && n > 1 {
		t.Fatalf("%d bytes, at most %d", s.Bytes, l.maxBytes)
	}
}

// Plain texts are cut by bytes: the tokens at a cut may be others when the text
// goes on, and so may some before it.
func TestPlainTextsAreLearned(t *testing.T) {
	e := fakeEngines["plain"]
	l := newTestLearned()
	shared := words("shared — \"quoted\" \\ and naïve 東京 👩‍🚀", 600)
	body := func(end string) []byte {
		quoted, _ := json.Marshal(strings.ReplaceAll(shared, "a", "é\n\"👩") + end)
		return []byte(`{"prompt":` + string(quoted) + `,"model":"m"}`)
	}
	for i := range 4 {
		e.check(t, l, body(words(fmt.Sprint(i), 30)), form4)
		e.teach(t, l, body(words(fmt.Sprint(i), 30)))
	}
	whole, _ := e.render(t, body("x"))
	if n := e.check(t, l, body("x"), form4); n < len(whole)*9/10-100 || n > len(whole)-guardTokens {
		t.Errorf("%d of %d tokens known", n, len(whole))
	}
}

func TestTheLeastRecentlyUsedGoes(t *testing.T) {
	e := fakeEngines["plain"]
	l := newTestLearned()
	learn := func(name string) {
		for _, u := range []string{"one", "two"} {
			e.teach(t, l, chat("", words(name, 1200), u))
		}
	}
	learn("a")
	each := l.Stats().Bytes
	l.maxBytes = 3*each + each/2
	learn("b")
	learn("c")
	e.check(t, l, chat("", words("a", 1200), "three"), form4)
	learn("d")
	for name, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		if n := e.check(t, l, chat("", words(name, 1200), "three"), form4); (n > 0) != want {
			t.Errorf("%s: %d tokens known", name, n)
		}
	}
	if s := l.Stats(); s.Evicted != 1 || s.Bytes > l.maxBytes {
		t.Errorf("%+v", s)
	}
}

// A prompt that disagrees takes what was learned out.
func TestContradictionsCount(t *testing.T) {
	e := fakeEngines["plain"]
	l := newTestLearned()
	head := words("head", 1200)
	for _, u := range []string{"one", "two"} {
		e.teach(t, l, chat("", head, u))
	}
	body := chat("", head, "three")
	r := parse(t, Chat, string(body))
	other, _ := e.render(t, body)
	other[7]++
	l.Learn(Lesson{Class: e.class(t), Request: r, Whole: other, At: -1})
	if n := e.check(t, l, body, form4); n != 0 {
		t.Errorf("%d tokens known still", n)
	}
	if s := l.Stats(); s.Refused[Contradicted] != 1 || s.Unusable != 1 {
		t.Errorf("%+v", s)
	}
}

// What went wrong at the first boundary forgets the class, once in a minute;
// what went wrong behind it, that boundary.
func TestFaults(t *testing.T) {
	e := fakeEngines["plain"]
	l := newTestLearned()
	head := words("head", 1200)
	turns := []string{head, words("u", 200), words("a", 200), words("v", 200)}
	for i := range 4 {
		e.teach(t, l, chat("", append(slices.Clone(turns), "ok", fmt.Sprint(i))...))
		e.teach(t, l, chat("", head, fmt.Sprint(i)))
	}
	body := chat("", append(slices.Clone(turns), "ok", "more")...)
	deep := e.check(t, l, body, form4)
	r := parse(t, Chat, string(body))
	now := clock.Instant(time.Hour)
	l.Fault(now, e.class(t), r, deep/4*4, 4)
	if n := e.check(t, l, body, form4); n != deep {
		t.Fatalf("%d tokens known of %d, though all was cached but the last block", n, deep)
	}
	l.Fault(now, e.class(t), r, 1300, 4)
	n := e.check(t, l, body, form4)
	if n >= deep || n == 0 {
		t.Fatalf("%d tokens known, before the fault %d", n, deep)
	}
	l.Fault(now, e.class(t), r, 16, 4)
	if n := e.check(t, l, body, form4); n != 0 || l.Stats().Bumped != 1 {
		t.Fatalf("%d tokens known of a class that was wrong", n)
	}
	checkBooks(t, l)
	if l.bump(now.Add(time.Second), e.class(t)) || !l.bump(now.Add(2*time.Minute), e.class(t)) {
		t.Error("a class is forgotten once in a minute")
	}
	for i := range 3 { // and learned anew
		e.teach(t, l, chat("", head, fmt.Sprint("again", i)))
	}
	if n := e.check(t, l, chat("", head, "x"), form4); n == 0 {
		t.Error("nothing is learned any more")
	}
}

// A form that comes into use later is added when the prompt is told again.
func TestFormsComeLater(t *testing.T) {
	e := fakeEngines["plain"]
	l := newTestLearned()
	head := words("head", 1200)
	e.teach(t, l, chat("", head, "one"))
	e.teach(t, l, chat("", head, "two"))
	late := Form{BlockTokens: 32}
	l.SetForms([]Form{form4, late})
	if n := e.check(t, l, chat("", head, "three"), late); n != 0 {
		t.Errorf("%d tokens in a form that nobody had", n)
	}
	e.teach(t, l, chat("", head, "three"))
	if n := e.check(t, l, chat("", head, "four"), late); n == 0 {
		t.Error("nothing known in the late form")
	}
	checkBooks(t, l)
}

func TestNothingKnownCostsLittle(t *testing.T) {
	var l *Learned
	r := parse(t, Chat, string(chat("", "a", "b")))
	if k := l.Find(r, 1, form4); k.Tokens != 0 || l != nil {
		t.Error("a nil Learned knows nothing")
	}
	if k := newTestLearned().Find(&Request{Tokens: []uint32{1}}, 1, form4); k.Keys != nil {
		t.Error("token ids need no learning")
	}
}

func TestSeenForgetsTheRare(t *testing.T) {
	s := newSeen(64)
	const famous = 77 << 8
	for range 50 {
		s.count(famous, true)
	}
	for i := range 64 * seenWays * 4 {
		s.count(uint64(i+100)<<8, true)
	}
	if n := s.count(famous, false); n == 0 {
		t.Error("what was met often is forgotten before what was met once")
	}
	for i := range 64 * seenWays * 400 {
		s.count(uint64(i+100000)<<8, true)
	}
	if n := s.count(famous, false); n != 0 {
		t.Errorf("old fame stays: %d", n)
	}
}
