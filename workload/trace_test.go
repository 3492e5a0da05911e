package workload

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestReadTraceForms(t *testing.T) {
	in := `{"timestamp": 3000, "input_length": 513, "output_length": 7, "hash_ids": [1, 2], "future": {"x": [1]}}

{"timestamp": 1500.5, "input_length": 1, "output_length": 0, "hash_ids": [18446744073709551615], "session_id": "s", "tenant": "acme", "tool": "grep"}
{"delay": 250, "input_length": 512.0, "output_length": 3, "hash_ids": [9], "session_id": "s"}
{"timestamp": 3000, "input_length": 5, "output_length": 1, "hash_ids": [4], "session_id": 17, "delay": 10}`
	got, err := ReadTrace(strings.NewReader(in), 0)
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	want := []Request{
		{At: 1500*ms + 500*time.Microsecond, InputTokens: 1, HashIDs: []uint64{math.MaxUint64}, Session: "s", Tenant: "acme", Tool: "grep"},
		{At: 1750*ms + 500*time.Microsecond, InputTokens: 512, OutputTokens: 3, HashIDs: []uint64{9}, Session: "s", Delay: 250 * ms},
		{At: 3000 * ms, InputTokens: 513, OutputTokens: 7, HashIDs: []uint64{1, 2}},
		{At: 3000 * ms, InputTokens: 5, OutputTokens: 1, HashIDs: []uint64{4}, Session: "17", Delay: 10 * ms},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestReadTraceBadLines(t *testing.T) {
	good := `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1]}` + "\n"
	for name, c := range map[string]struct {
		line, says string
	}{
		"not JSON":       {"}{", "not a trace request"},
		"an array":       {"[]", "not a trace request"},
		"cut off":        {`{"timestamp":0`, "not a trace request"},
		"no length":      {`{"timestamp":0,"output_length":1,"hash_ids":[1]}`, "input_length is missing"},
		"no prompt":      {`{"timestamp":0,"input_length":0,"output_length":1,"hash_ids":[]}`, "input_length is 0"},
		"half a token":   {`{"timestamp":0,"input_length":1,"output_length":0.5,"hash_ids":[1]}`, "output_length is 0.5"},
		"huge":           {`{"timestamp":0,"input_length":1e18,"output_length":1,"hash_ids":[1]}`, "input_length is 1e+18"},
		"other blocks":   {`{"timestamp":0,"input_length":1024,"output_length":1,"hash_ids":[1]}`, "makes 2 blocks of 512"},
		"negative id":    {`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[-1]}`, "not a trace request"},
		"no arrival":     {`{"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp is missing"},
		"before zero":    {`{"timestamp":-1,"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp is -1 ms"},
		"first delay":    {`{"delay":5,"session_id":"new","input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp is missing"},
		"endless name":   {`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1],"tool":"` + strings.Repeat("x", 2000) + `"}`, "longer than 1024"},
		"unbounded line": {strings.Repeat(" ", MaxLineBytes+1), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadTrace(strings.NewReader(good+"\n"+c.line+"\n"+good), 0)
			var line *LineError
			if !errors.As(err, &line) || line.Line != 3 || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want trace line 3: …%s…", err, c.says)
			}
		})
	}
	if reqs, err := ReadTrace(strings.NewReader(good+"}{"), 1); err != nil || len(reqs) != 1 {
		t.Errorf("limit 1 read on: %v, %v", reqs, err)
	}
}

func TestReadTracePassesOnReadErrors(t *testing.T) {
	boom := errors.New("boom")
	if _, err := ReadTrace(&failingReader{boom}, 0); !errors.Is(err, boom) {
		t.Errorf("got %v, want it to wrap %v", err, boom)
	}
}

type failingReader struct{ err error }

func (r *failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestExcerpt(t *testing.T) {
	reqs, err := Excerpt(0)
	if err != nil {
		t.Fatal(err)
	}
	if n, last := len(reqs), reqs[len(reqs)-1].At; n != 500 || last != 165*time.Second {
		t.Errorf("excerpt has %d requests until %v, want 500 until 2m45s", n, last)
	}
	if few, err := Excerpt(200); err != nil || len(few) != 200 {
		t.Errorf("Excerpt(200): %d requests, %v", len(few), err)
	}
}

// The expected figures were computed apart from this code (a dozen lines of
// Python over the published file's first 200 and 500 lines).
func TestInfiniteCacheShareOfExcerpt(t *testing.T) {
	for limit, want := range map[int]Share{
		200: {Blocks: 322.0 / 5537, Tokens: 164864.0 / 2782179},
		500: {Blocks: 2283.0 / 14162, Tokens: 1167589.0 / 7124855},
	} {
		reqs, err := Excerpt(limit)
		if err != nil {
			t.Fatal(err)
		}
		if got := InfiniteCacheShare(reqs); got != want {
			t.Errorf("first %d: %+v, want %+v", limit, got, want)
		}
	}
}

func TestInfiniteCacheShareCountsLeadingRunsOnly(t *testing.T) {
	reqs := []Request{
		{InputTokens: 1536, HashIDs: []uint64{1, 2, 3}},
		{InputTokens: 1536, HashIDs: []uint64{1, 9, 3}}, // 3 is behind a miss
		{InputTokens: 600, HashIDs: []uint64{1, 9}},     // the partial block counts as its 88 tokens
	}
	want := Share{Blocks: 3.0 / 8, Tokens: (512.0 + 600) / (1536 + 1536 + 600)}
	if got := InfiniteCacheShare(reqs); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := InfiniteCacheShare(nil); got != (Share{}) {
		t.Errorf("empty trace: %+v", got)
	}
}

func TestJitterLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var reqs []Request
		at := time.Duration(0)
		for range rapid.IntRange(0, 20).Draw(t, "ticks") {
			for range rapid.IntRange(1, 6).Draw(t, "requests") {
				reqs = append(reqs, Request{At: at, InputTokens: len(reqs) + 1})
			}
			at += time.Duration(rapid.IntRange(1, 9000).Draw(t, "gap")) * time.Millisecond
		}
		seed := rapid.Uint64().Draw(t, "seed")
		got := Jitter(reqs, seed)
		if d := cmp.Diff(got, Jitter(reqs, seed)); d != "" {
			t.Fatal("equal seeds, other arrivals:", d)
		}
		for i, r := range got {
			late := r.At - reqs[i].At
			if r.InputTokens != reqs[i].InputTokens || late < 0 || late >= Tick {
				t.Fatalf("request %d of %v moved to %v", i, reqs[i], r)
			}
			if i > 0 && r.At < got[i-1].At {
				t.Fatalf("request %d at %v overtakes %v", i, r.At, got[i-1].At)
			}
		}
	})
}

func TestJitterSpreadsEvenly(t *testing.T) {
	reqs := make([]Request, 3000)
	got := Jitter(reqs, 7)
	var mean time.Duration
	for _, r := range got {
		mean += r.At / time.Duration(len(got))
	}
	if mean < 1400*time.Millisecond || mean > 1600*time.Millisecond {
		t.Errorf("mean offset %v, want about 1.5s", mean)
	}
	if got[0].At == Jitter(reqs, 8)[0].At {
		t.Error("seeds 7 and 8 give the same arrivals")
	}
}

func TestParents(t *testing.T) {
	turn := func(tokens int, ids ...uint64) Request { return Request{InputTokens: tokens, HashIDs: ids} }
	reqs := []Request{
		turn(1100, 0, 1, 90),       // 0: a conversation
		turn(1100, 0, 2, 91),       // 1: another one, with the same system prompt
		turn(1600, 0, 1, 3, 92),    // 2: continues 0
		turn(1700, 0, 1, 3, 93),    // 3: continues 2, grown by less than a block
		turn(2100, 0, 1, 3, 4, 94), // 4: continues 3
		turn(600, 0, 95),           // 5: only the system prompt: nobody's turn
		turn(1100, 0, 5, 96),       // 6: new
		turn(100, 97),              // 7: shorter than a block
		{InputTokens: 1, HashIDs: []uint64{1}, Session: "a"},
		{InputTokens: 1, HashIDs: []uint64{1}, Session: "b"},
		{InputTokens: 1, HashIDs: []uint64{1}, Session: "a"},
	}
	want := []int{-1, -1, 0, 2, 3, -1, -1, -1, -1, -1, 8}
	if d := cmp.Diff(want, Parents(reqs)); d != "" {
		t.Error(d)
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(`{"timestamp": 0, "input_length": 600, "output_length": 500, "hash_ids": [0, 1]}`))
	f.Add([]byte("{\"timestamp\":1e308,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n\n{"))
	f.Add([]byte(`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1],"session_id":"a"}` + "\n" +
		`{"delay":3,"input_length":1,"output_length":1,"hash_ids":[1],"session_id":"a"}`))
	f.Add([]byte(`{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":null,"session_id":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		reqs, err := ReadTrace(bytes.NewReader(data), 0)
		if err != nil {
			var line *LineError
			if !errors.As(err, &line) || line.Line < 1 || line.Line > bytes.Count(data, []byte("\n"))+1 {
				t.Fatalf("error without a line of the input: %v", err)
			}
			return
		}
		for i, r := range reqs {
			if r.At < 0 || r.InputTokens < 1 || r.OutputTokens < 0 || (i > 0 && r.At < reqs[i-1].At) {
				t.Fatalf("request %d: %+v", i, r)
			}
		}
		if s := InfiniteCacheShare(reqs); s.Tokens < 0 || s.Tokens > 1 || s.Blocks < 0 || s.Blocks > 1 {
			t.Fatalf("share %+v", s)
		}
		for i, p := range Parents(reqs) {
			if p >= i {
				t.Fatalf("request %d continues %d", i, p)
			}
		}
		p := TracePlan(reqs, TraceOptions{Seed: 1, Hold: true})
		for i, n := range InfiniteCache(&p, 16) {
			if n < 0 || n > reqs[i].InputTokens || p.Jobs[i].PromptTokens() != reqs[i].InputTokens {
				t.Fatalf("job %d: %d tokens cached of %d", i, n, reqs[i].InputTokens)
			}
		}
	})
}

func ExampleInfiniteCacheShare() {
	reqs, _ := Excerpt(0)
	s := InfiniteCacheShare(reqs)
	fmt.Printf("%.4f of the blocks, %.4f of the tokens\n", s.Blocks, s.Tokens)
	// Output: 0.1612 of the blocks, 0.1639 of the tokens
}
