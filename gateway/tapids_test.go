package gateway

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestIDTap(t *testing.T) {
	for in, want := range map[string][]uint32{
		`{"id":"x","prompt_token_ids":[1,22, 4294967295],"choices":[]}`:                 {1, 22, 4294967295},
		`data: {"prompt_token_ids" : [7 ]}` + "\n\n" + `data: {"prompt_token_ids":[8]}`: {7},
		`{"text":"\"prompt_token_ids\":[5]","prompt_token_ids":null}`:                   nil,
		`{"prompt_token_ids":null}{"prompt_token_ids":[3]}`:                             {3},
		`{"choices":[{"prompt_token_ids":[1,2,3`:                                        nil,
		`{"prompt_token_ids":[1,-2]}`:                                                   nil,
		`{"prompt_token_ids":[1,4294967296]}`:                                           nil,
		`{"prompt_token_ids":["a"]}`:                                                    nil,
		`{"a":"prompt_token_ids","b":[1]}`:                                              nil,
		`""prompt_token_ids":[9]`:                                                       {9},
		`{"prompt_token_ids":[` + strings.Repeat("1,", maxTappedIDs+1) + `1]}`:          nil,
	} {
		whole := new(idTap)
		whole.Write([]byte(in))
		if got := whole.IDs(); !slices.Equal(got, want) {
			t.Errorf("%.60s: %v, want %v", in, got, want)
		}
	}
}

// However the bytes are split, the ids are the same.
func TestIDTapMindsNoSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := []byte(rapid.SampledFrom([]string{
			`{"prompt_token_ids":[10,200,3000],"x":"\"prompt_token_ids\""}`, `data: {"a":1,"prompt_token_ids": [ 5 , 6 ] }`, `"prompt_"prompt_token_ids":[1]`,
		}).Draw(t, "in"))
		whole, split := new(idTap), new(idTap)
		whole.Write(in)
		for len(in) > 0 {
			n := rapid.IntRange(1, len(in)).Draw(t, "n")
			split.Write(in[:n])
			in = in[n:]
		}
		if !slices.Equal(whole.IDs(), split.IDs()) {
			t.Fatalf("%v, at once %v", split.IDs(), whole.IDs())
		}
	})
}
