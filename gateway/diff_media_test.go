package gateway_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/rhizome-router/rhizome/internal/testkit"
)

// Bodies compressed by other programs' libraries; each decodes to asked.
const (
	zstdAsked     = "KLUv/QQAyQEAeyJtb2RlbCI6Im0iLCJtZXNzYWdlcyI6W3sicm9sZSI6InVzZXIiLCJjb250ZW50IjoiaGkifV19JLSHhg=="
	brotliAsked   = "GzgAAATBbakvP6SnKjYFBY90ETbghCCwACNa6dzO9Dx1xzxSCUBle6BIgcII67ektf3+AQ=="
	gzipZstdAsked = "KLUv/QQAeQIAH4sIAAAAAAAA/wTAwQmAMAyF4V3+cyfIKuJB9KFC00BTT6W7+008LlUMp+DKPG4ltk16VGF8qU7hjDbUBsbzsvb1BwAA///vNcJUOQAAAMed0bw="
)

func unbase64(s string) string {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func multipart(parts ...string) string {
	return "--b0undary\r\n" + strings.Join(parts, "\r\n--b0undary\r\n") + "\r\n--b0undary--\r\n"
}

// TestDiffMedia sends what isn't plain JSON, directly and through the gateway.
func TestDiffMedia(t *testing.T) {
	audio := strings.Repeat("\x00\xff\r\n--b0undar\x1a", 5000)
	model := "Content-Disposition: form-data; name=\"model\"\r\n\r\nm"
	file := "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n" + audio
	form := "Content-Type: multipart/form-data; boundary=b0undary"
	d := differ(t)
	for name, ask := range map[string]string{
		"zstd":                  request(chatPath, unbase64(zstdAsked), "Content-Encoding: zstd"),
		"br":                    request(chatPath, unbase64(brotliAsked), "Content-Encoding: br"),
		"gzip, zstd":            request(chatPath, unbase64(gzipZstdAsked), "Content-Encoding: gzip, zstd"),
		"multipart model first": request("/v1/audio/transcriptions", multipart(model, file), form),
		"multipart model last":  request("/v1/audio/transcriptions", multipart(file, model), form),
	} {
		t.Run(name, func(t *testing.T) {
			direct, routed := d.Run(t, ask, testkit.Script{testkit.Send(testkit.JSON(200, `{"text":"x"}`))})
			testkit.Same(t, direct, routed)
		})
	}
}
