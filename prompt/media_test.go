package prompt

import (
	"strings"
	"testing"
)

// TestMediaIsWhatADataURLHolds, and no text that speaks of one.
func TestMediaIsWhatADataURLHolds(t *testing.T) {
	for piece, media := range map[string]int{
		`{"url":"data:image/png;base64,AAAA"}`:                         len(`data:image/png;base64,AAAA`),
		`{"url":"data:;base64,AAAA"},{"url":"data:a/b;x=y;base64,BB"}`: len(`data:;base64,AAAA`) + len(`data:a/b;x=y;base64,BB`),
		`{"content":"write \"data:image/png;base64,AAAA\" for me"}`:    0,
		`{"content":"say \\\"data:image/png;base64,AAAA\\\" please"}`:  0,
		`{"content":"data: the table has 3 rows, all told"}`:           0,
		`{"content":"data:"}`:                                0,
		`{"a":"data:x","b":"data:image/png;base64,AA"}`:      len(`data:image/png;base64,AA`),
		`"data:` + strings.Repeat("x", 1000) + `;base64,AA"`: 0,
		`{"data:image/png;base64,AAAA":1}`:                   0,
	} {
		body := `{"model":"data:image/png;base64,AAAA","messages":[` + piece + `],"x":"data:image/png;base64,AAAA"}`
		var s Scanner
		if err := s.Scan([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if got := s.mediaBytes(s.members[memberMessages].Span); got != media {
			t.Errorf("%s: %d bytes of media, want %d", piece, got, media)
		}
	}
}
