package config

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const secretDocument = `name: a
gateway:
  listen: ":1"
  admin:
    listen: "0.0.0.0:1"
    token: hunter2-s3cret
  keys:
    - {name: k, sha256: "hunter2-s3cret"}
  max_attempts: 3
workers:
  - url: http://a:1
    token: >-
      hunter2-s3cret
    dp: 2
`

// Whatever is mistyped in one place, no error shows a secret.
func TestNoErrorShowsASecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := secretDocument
		at := rapid.IntRange(0, len(doc)).Draw(t, "at")
		if i := strings.LastIndex(doc[:at], "hunter2"); i >= 0 && at < i+len("hunter2-s3cret") {
			at = i // what is cut in two is no secret any more
		}
		n := min(rapid.IntRange(0, 2).Draw(t, "cut"), len(doc)-at)
		if i := strings.Index(doc[at:], "hunter2"); i >= 0 {
			n = min(n, i)
		}
		put := rapid.StringOfN(rapid.RuneFrom([]rune(" :\"'{}[]#&*-\n\t|>?,!%x")), 0, 3, -1).Draw(t, "put")
		doc = doc[:at] + put + doc[at+n:]
		_, err := load([]byte(doc))
		if err == nil {
			return
		}
		for _, secret := range []string{"hunter2", "s3cret"} {
			if strings.Contains(err.Error(), secret) {
				t.Fatalf("the error shows a secret:\n%v\nof\n%s", err, doc)
			}
		}
	})
}
